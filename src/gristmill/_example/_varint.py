"""Numbers of 7 bits a byte, the lowest first: many of them at once."""

import numpy as np
from numpy.typing import NDArray

LONGEST = 10
"""Bytes of a number of 64 bits."""


def join_varints(digits: NDArray[np.uint8], is_last: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Give the numbers that end where `is_last` says; None if one of them is too long.

    >>> digits = np.array([5, 0xAC, 2], np.uint8)
    >>> join_varints(digits, digits < 128)
    array([  5, 300])
    """
    lasts = np.flatnonzero(is_last)
    firsts = np.concatenate((np.zeros(1, np.int64), lasts[:-1] + 1))
    sizes = lasts - firsts + 1
    longest = int(sizes.max())
    if longest > LONGEST:
        return None
    values = (digits[firsts] & 127).astype(np.uint64)
    for place in range(1, longest):
        more = np.flatnonzero(sizes > place)
        byte = (digits[firsts[more] + place] & 127).astype(np.uint64)
        values[more] |= byte << np.uint64(7 * place)
    return values.view(np.int64)
