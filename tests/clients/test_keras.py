"""Keras takes our datasets and loaders for Grain's, on each of its backends."""

import pytest

from tests.clients.run import AS_GRAIN, run

BACKENDS = pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])


@BACKENDS
def test_fit_trains_as_on_grain_which_is_installed_beside_us(backend: str):
    found = run("keras_fit.py", "grain", "gristmill", KERAS_BACKEND=backend)

    ours, grains = found["losses"]["gristmill"], found["losses"]["grain"]
    with_worker = ours.pop("DataLoader with a worker")
    assert with_worker == ([] if backend == "tensorflow" else ours["DataLoader"])
    del grains["DataLoader with a worker"]
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
    del ours["DataLoader with a worker"], in_grains_place["DataLoader with a worker"]
    assert ours == in_grains_place
    assert found["in_pipeline"] == [True]


def test_a_preprocessing_layer_stays_on_the_cpu_inside_a_transform():
    devices = run(
        "keras_layer.py",
        KERAS_BACKEND="jax",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )

    assert devices == {"inside": [0], "outside": 1}
