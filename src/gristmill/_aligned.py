"""Arrays that begin at a multiple of 64 bytes, which JAX takes over on a CPU without a copy."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 64
_SMALLEST = 1 << 14
"""To copy less than this takes no longer than to align it."""


def aligned_empty(shape: Sequence[int], dtype: Any) -> NDArray[Any]:
    """Give an array like `np.empty`, aligned if it is large enough for that to matter.

    >>> aligned_empty((100, 100), np.float32).ctypes.data % 64
    0
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < _SMALLEST or kind.hasobject:
        return np.empty(shape, kind)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return np.ndarray(shape, kind, memory, start)
