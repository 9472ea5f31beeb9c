from typing import Any

import numpy as np
import pytest

from gristmill._base.memory.aligned_alloc import aligned_empty, as_mapped, mapped_empty


@pytest.mark.parametrize("dtype", [np.uint8, np.float64, "M8[s]", "V7"])
@pytest.mark.parametrize("shape", [(1 << 14,), (129, 131), (1 << 14, 0), (3,), ()])
def test_large_arrays_are_aligned_and_all_have_the_shape_and_the_dtype(shape: Any, dtype: Any):
    arrays = [aligned_empty(shape, dtype) for _ in range(5)]

    for array in arrays:
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert array.nbytes < 1 << 14 or array.ctypes.data % 64 == 0


def test_objects_start_as_none():
    assert aligned_empty((1 << 14,), object).tolist() == [None] * (1 << 14)


@pytest.mark.parametrize("dtype", [np.uint8, np.float64, "M8[s]", object])
@pytest.mark.parametrize("shape", [(1 << 18,), (1031, 517), (3,), (0, 5), ()])
def test_mapped_arrays_have_the_shape_and_the_dtype(shape: Any, dtype: Any):
    array = mapped_empty(shape, dtype)
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    array[...] = np.zeros(shape, dtype)
    assert np.array_equal(as_mapped(array), np.zeros(shape, dtype))


def test_more_memory_than_there_is_cannot_be_mapped():
    with pytest.raises(MemoryError, match="Unable to map"):
        mapped_empty((1 << 60,), np.uint8)
