"""What goes the way of an array before it is what `jax.device_put` makes of it."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import gristmill
from gristmill.feeding import _shortcut
from gristmill.feeding._shortcut import Shortcut

DEVICE = jax.devices()[0]
MESH = Mesh([DEVICE], ("data",))
EXPLICIT = jax.make_mesh((1,), ("data",), devices=[DEVICE])
PLACES = {
    "default": None,
    "device": DEVICE,
    "single": SingleDeviceSharding(DEVICE),
    "mesh": NamedSharding(MESH, PartitionSpec("data")),
    "explicit mesh": NamedSharding(EXPLICIT, PartitionSpec("data")),
    "replicated": NamedSharding(MESH, PartitionSpec()),
}
DTYPES = ["bool", "int8", "uint8", "int32", "uint32", "float16", "float32", "complex64", "bfloat16"]


def arrays(dtype: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    values = np.random.default_rng(0).integers(0, 100, (2, *shape))
    made = values.astype(jax.numpy.dtype(dtype))
    return made[0], made[1]


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4,), (4, 3), (0, 2)], ids=str)
def test_it_gives_what_jax_gives(place: Any, dtype: str, shape: tuple[int, ...]):
    first, second = arrays(dtype, shape)
    shortcut = Shortcut()
    assert shortcut.put(first, place) is None
    shortcut.learn(first, place, jax.device_put(first, place))

    ours, expected = shortcut.put(second, place), jax.device_put(second, place)

    assert ours.aval == expected.aval
    assert ours.sharding == expected.sharding
    assert ours.committed == expected.committed
    assert ours.weak_type == expected.weak_type
    assert np.asarray(ours).tobytes() == second.tobytes()
    assert jax.jit(lambda x: x)(ours).sharding == jax.jit(lambda x: x)(expected).sharding


def test_nothing_is_learnt_of_what_jax_changes():
    wide = np.arange(3.0)
    shortcut = Shortcut()

    shortcut.learn(wide, DEVICE, jax.device_put(wide, DEVICE))

    assert shortcut.put(wide, DEVICE) is None


def test_another_shape_type_or_place_is_another_way():
    array = np.zeros((4, 2), np.float32)
    shortcut = Shortcut()
    shortcut.learn(array, DEVICE, jax.device_put(array, DEVICE))

    assert shortcut.put(np.zeros((4, 3), np.float32), DEVICE) is None
    assert shortcut.put(np.zeros((4, 2), np.int32), DEVICE) is None
    assert shortcut.put(array, PLACES["mesh"]) is None
    assert shortcut.put(array, DEVICE) is not None


@pytest.mark.parametrize("trouble", ["it is not there", "it takes other arguments"])
def test_a_jax_without_it_is_fed_all_the_same(monkeypatch: pytest.MonkeyPatch, trouble: str):
    found = None if trouble == "it is not there" else lambda: None
    monkeypatch.setattr(_shortcut, "_find_hand_over", lambda: found)
    loader = gristmill.load(np.arange(12, dtype=np.int32), num_epochs=1, batch_size=4)

    with gristmill.feed(loader, DEVICE) as batches:
        fed = [batch.tolist() for batch in batches]

    assert fed == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
