"""`FastDevicePut` places arrays exactly as `jax.device_put` does."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import gristmill
from gristmill._api.feeding import fast_device_put as _fast_device_put
from gristmill._api.feeding.fast_device_put import FastDevicePut

DEVICE = jax.devices()[0]
MESH = Mesh([DEVICE], ("data",))
EXPLICIT = jax.make_mesh((1,), ("data",), devices=[DEVICE])
TARGETS = {
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


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4,), (4, 3), (0, 2)], ids=str)
def test_the_result_is_that_of_jax(target: Any, dtype: str, shape: tuple[int, ...]):
    first, second = arrays(dtype, shape)
    fast_put = FastDevicePut()
    assert fast_put.put(first, target) is None
    fast_put.record(first, target, jax.device_put(first, target))

    ours: Any = fast_put.put(second, target)
    expected = jax.device_put(second, target)

    assert ours.aval == expected.aval
    assert ours.sharding == expected.sharding
    assert ours.committed == expected.committed
    assert ours.weak_type == expected.weak_type
    assert np.asarray(ours).tobytes() == second.tobytes()
    assert jax.jit(lambda x: x)(ours).sharding == jax.jit(lambda x: x)(expected).sharding


def test_arrays_that_jax_converts_are_not_recorded():
    wide = np.arange(3.0)
    fast_put = FastDevicePut()

    fast_put.record(wide, DEVICE, jax.device_put(wide, DEVICE))

    assert fast_put.put(wide, DEVICE) is None


def test_another_shape_dtype_or_target_is_not_known():
    array = np.zeros((4, 2), np.float32)
    fast_put = FastDevicePut()
    fast_put.record(array, DEVICE, jax.device_put(array, DEVICE))

    assert fast_put.put(np.zeros((4, 3), np.float32), DEVICE) is None
    assert fast_put.put(np.zeros((4, 2), np.int32), DEVICE) is None
    assert fast_put.put(array, TARGETS["mesh"]) is None
    assert fast_put.put(array, DEVICE) is not None


@pytest.mark.parametrize("problem", ["it does not exist", "it takes other arguments"])
def test_a_jax_without_the_function_can_be_fed(monkeypatch: pytest.MonkeyPatch, problem: str):
    found = None if problem == "it does not exist" else lambda: None
    monkeypatch.setattr(_fast_device_put, "_find_batched_device_put", lambda: found)
    loader = gristmill.load(np.arange(12, dtype=np.int32), num_epochs=1, batch_size=4)

    with gristmill.feed(loader, DEVICE) as batches:
        fed = [batch.tolist() for batch in batches]

    assert fed == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
