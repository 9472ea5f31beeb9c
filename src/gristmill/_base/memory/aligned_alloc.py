"""Allocate arrays that JAX uses on a CPU without copying them, in memory that is warm."""

import math
import mmap
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import DTypeLike

from gristmill.types import AnyArray

_ALIGNMENT_BYTES = 64
_MIN_ALIGNED_BYTES = 1 << 14
"""Copying fewer bytes than this takes no longer than aligning them."""

_MIN_MAPPED_BYTES = 1 << 18
"""Mapping fewer bytes than this takes longer than filling them, and wastes part of a page."""


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


def mapped_empty(shape: Sequence[int], dtype: DTypeLike) -> AnyArray:
    """Return an array like `np.empty`, whose memory returns to the system as soon as it is freed.

    For memory that many threads allocate and that others free, such as cached chunks: glibc has an
    arena for each thread, and each keeps what was freed in it. A source whose arrays took 200 MB
    at a time held up to 800 MB.

    >>> mapped_empty((1000, 1000), np.float32).shape
    (1000, 1000)
    """
    dtype = np.dtype(dtype)
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes < _MIN_MAPPED_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        memory = mmap.mmap(-1, num_bytes, flags=flags)
    except OSError as error:  # as NumPy reports it
        raise MemoryError(f"Unable to map {num_bytes:,} bytes of memory.") from error
    return np.ndarray(shape, dtype, memory)


def as_mapped(array: AnyArray) -> AnyArray:
    """Return a copy of an array as `mapped_empty` allocates it; the array itself if it is small."""
    if array.nbytes < _MIN_MAPPED_BYTES or array.dtype.hasobject:
        return array
    copy = mapped_empty(array.shape, array.dtype)
    copy[...] = array
    return copy
