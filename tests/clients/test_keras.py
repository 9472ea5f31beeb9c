"""Keras takes our datasets and loaders for Grain's, on each of its backends."""

from pathlib import Path

import pytest

from tests.clients.run import AS_GRAIN, run

BACKENDS = pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])


@BACKENDS
def test_fit_trains_as_on_grain_which_is_installed_beside_us(backend: str):
    found = run("keras_fit.py", "grain", "gristmill", "--worker", KERAS_BACKEND=backend)

    ours, grains = found["losses"]["gristmill"], found["losses"]["grain"]
    assert ours.pop("DataLoader with a worker") == ours["DataLoader"]
    assert ours == grains
    assert found["in_pipeline"] == [True]


@BACKENDS
def test_fit_trains_the_same_when_grain_was_never_imported(backend: str):
    found = run("keras_fit.py", "gristmill", KERAS_BACKEND=backend)

    losses = found["losses"]["gristmill"]
    assert losses["MapDataset"] == losses["IterDataset"]
    assert all(losses[kind][1] < losses[kind][0] for kind in ("MapDataset", "DataLoader"))


@BACKENDS
def test_fit_trains_the_same_in_the_place_of_grain(backend: str):
    found = run("keras_fit.py", "grain", "gristmill", interpreter=AS_GRAIN, KERAS_BACKEND=backend)

    ours, in_grains_place = found["losses"]["gristmill"], found["losses"]["grain"]
    assert ours == in_grains_place
    assert found["in_pipeline"] == [True]


@BACKENDS
def test_fit_resumes_with_the_batch_that_follows_a_backup(backend: str, tmp_path: Path):
    found = run("keras_backup.py", str(tmp_path), KERAS_BACKEND=backend)

    assert found["num_steps"] == 20  # the program ended in the third of four epochs of ten steps
    assert found["resumed"] == found["whole"]


def test_a_preprocessing_layer_stays_on_the_cpu_inside_a_transform():
    devices = run(
        "keras_layer.py",
        KERAS_BACKEND="jax",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )

    assert devices == {"inside": [0], "outside": 1}


@pytest.mark.parametrize("interpreter", [(), AS_GRAIN])
def test_a_layer_in_a_worker_is_in_a_pipeline_without_an_import_of_grain(
    interpreter: tuple[str, ...],
):
    assert run("keras_worker.py", interpreter=interpreter, KERAS_BACKEND="jax") == [
        {"is in a pipeline": True, "has imported Grain": False}
    ]
