"""Allocate arrays that JAX uses on a CPU without copying them, in memory that is warm."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import DTypeLike

from gristmill.types import AnyArray

_ALIGNMENT_BYTES = 64
_MIN_ALIGNED_BYTES = 1 << 14
"""Copying fewer bytes than this takes no longer than aligning them."""


def aligned_empty(shape: Sequence[int], dtype: DTypeLike) -> AnyArray:
    """Return an uninitialized array like `np.empty`, aligned if it is large enough to matter.

    Arrays of Python objects are never aligned.

    >>> aligned_empty((100, 100), np.float32).ctypes.data % 64
    0
    """
    dtype = np.dtype(dtype)
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes < _MIN_ALIGNED_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = np.empty(num_bytes + _ALIGNMENT_BYTES, np.uint8)
    offset = -memory.__array_interface__["data"][0] % _ALIGNMENT_BYTES
    return np.ndarray(shape, dtype, memory, offset)


@cache
def keep_memory_warm() -> None:
    """Make the allocator keep the memory of freed batches for the next ones.

    By default glibc returns free memory beyond 128 kB to the system, and filling a batch of 100 kB
    in fresh pages takes three times as long as in used ones. It keeps up to twice the size of the
    largest allocation that was ever freed. So this frees one, without having touched its pages.
    """
    np.empty(16 << 20, dtype=np.uint8)
