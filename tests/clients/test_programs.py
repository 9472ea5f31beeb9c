"""Programs that import Grain, and libraries that do, run on gristmill and do the same."""

from tests.clients.run import AS_GRAIN, run


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
