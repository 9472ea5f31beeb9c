"""Decoding of many varints (7 bits per byte, lowest first) at once."""

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 10
"""Bytes of a 64-bit number."""


def join_varints(digits: NDArray[np.uint8], is_last: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Return the numbers whose last bytes `is_last` marks; `None` if one of them is too long.

    >>> digits = np.array([5, 0xAC, 2], np.uint8)
    >>> join_varints(digits, digits < 128)
    array([  5, 300])
    """
    lasts = np.flatnonzero(is_last)
    firsts = np.concatenate((np.zeros(1, np.int64), lasts[:-1] + 1))
    sizes = lasts - firsts + 1
    longest = int(sizes.max())
    if longest > MAX_BYTES:
        return None
    values = (digits[firsts] & 127).astype(np.uint64)
    for digit in range(1, longest):
        more = np.flatnonzero(sizes > digit)
        byte = (digits[firsts[more] + digit] & 127).astype(np.uint64)
        values[more] |= byte << np.uint64(7 * digit)
    return values.view(np.int64)
