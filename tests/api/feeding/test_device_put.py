"""Placing elements on devices as a step of a dataset, as in Grain."""

import json
from typing import Any

import grain
import jax
import numpy as np
import pytest

import gristmill as gm
from tests.api.feeding.batches import lists


def pipelines(module: Any) -> dict[str, Any]:
    """Return the same pipelines, of Grain or of gristmill."""
    plain = module.MapDataset.range(10).map(np.int32)
    tree = plain.map(lambda x: {"x": x, "y": [np.full(3, x, np.float32)]})
    return {
        "elements": plain.to_iter_dataset(),
        "batches": tree.to_iter_dataset().batch(4),
        "full_batches": tree.to_iter_dataset().batch(4, drop_remainder=True),
        "shuffled": tree.seed(3).shuffle().batch(3).to_iter_dataset(),
        "epochs": tree.batch(4).repeat(2).to_iter_dataset(),
        "filtered": plain.filter(lambda x: x % 3 > 0).to_iter_dataset().map(lambda x: x + 1),
    }


@pytest.mark.parametrize("kind", list(pipelines(gm)))
@pytest.mark.parametrize("sizes", [(4, 2), (1, 1), (0, 0)], ids=str)
def test_device_put_yields_the_elements_of_grains(kind: str, sizes: tuple[int, int]):
    device, (on_host, on_device) = jax.devices()[0], sizes
    theirs = list(grain.experimental.device_put(pipelines(grain)[kind], device))
    ds = gm.experimental.device_put(
        pipelines(gm)[kind], device, cpu_buffer_size=on_host, device_buffer_size=on_device
    )

    with iter(ds) as iterator:
        ours = list(iterator)

    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (mine.dtype, mine.sharding) == (other.dtype, other.sharding)
        assert np.asarray(mine).tolist() == np.asarray(other).tolist()


@pytest.mark.parametrize("kind", list(pipelines(gm)))
def test_device_put_resumes_from_any_state(kind: str):
    ds = gm.experimental.device_put(pipelines(gm)[kind], jax.devices()[0])
    with iter(ds) as iterator:
        states = [iterator.get_state()]
        elements: list[Any] = []
        for element in iterator:
            elements += lists([element])
            states.append(iterator.get_state())

    for count, state in enumerate(states):
        with iter(ds) as resumed:
            resumed.set_state(json.loads(json.dumps(state)))
            assert lists(resumed) == elements[count:]
