"""Programs that import Grain, and libraries that do, run on gristmill and do the same."""

from pathlib import Path

import pytest

from tests.clients.run import AS_GRAIN, run

ROOT = Path(__file__).parents[2]


def test_the_checkpoint_handlers_of_grain_and_orbax_save_and_restore_our_iterators():
    found = run("orbax_handlers.py", interpreter=AS_GRAIN)

    assert found == {"mixin": True, "dataset": True, "loader": True}


def test_a_training_loop_of_flax_has_the_same_losses():
    ours, package = run("flax_pipeline.py", interpreter=AS_GRAIN)
    grains, other = run("flax_pipeline.py")

    assert (package, other) == ("gristmill", "grain")
    assert ours == grains


def test_a_data_source_of_tfds_has_the_same_batches():
    ours, package = run("tfds_source.py", interpreter=AS_GRAIN)
    grains, other = run("tfds_source.py")

    assert (package, other) == ("gristmill", "grain")
    assert ours == grains


def test_a_training_loop_of_torch_resumes_from_its_state_dict():
    ours = run("torch_loop.py", interpreter=AS_GRAIN)

    assert ours["resumes"]
    assert ours == run("torch_loop.py")


@pytest.mark.parametrize("program", ["axlearn_like", "maxtext_like"])
def test_a_pipeline_like_those_of_larger_projects_delivers_the_same(program: str):
    path = str(ROOT / "clients" / "programs" / f"{program}.py")
    grains = run(path, PYTHONPATH=str(ROOT))
    ours = run(path, interpreter=AS_GRAIN, PYTHONPATH=f"{ROOT}/src:{ROOT}")

    assert (grains["package"], ours["package"]) == ("grain", "gristmill")
    assert grains["count"] == ours["count"] > 400
    assert grains["checksum"] == ours["checksum"]


def test_a_training_with_checkpoints_of_model_and_data_continues_as_if_it_never_stopped():
    ours = run("orbax_training.py", interpreter=AS_GRAIN)

    assert ours == run("orbax_training.py")
    assert ours["continued"] == dict.fromkeys(ours["continued"], True)


@pytest.mark.parametrize(
    "program",
    ["own_datasets.py", "overridden_datasets.py", "elastic_shards.py", "mocked_tfds.py"],
)
def test_a_program_prints_the_same_on_both(program: str):
    ours = run(program, interpreter=AS_GRAIN)

    assert ours == run(program)
    assert len(ours) > 3
