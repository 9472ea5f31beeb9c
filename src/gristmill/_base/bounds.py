"""Check that indices of a sequence are within its bounds."""

import operator
from typing import SupportsIndex

from gristmill.types import Span


def check_index(index: SupportsIndex, length: int, *, name: str = "index") -> int:
    """Return `index` as an `int`, or raise `IndexError` if it is not in `[0, length)`.

    Negative indices are out of bounds: sources do not count from the end.

    >>> check_index(2, 3)
    2
    >>> check_index(3, 3)
    Traceback (most recent call last):
        ...
    IndexError: `index` must be in [0, 3), got 3.

    Args:
        index: An integer, a NumPy integer or any object with `__index__`.
        length: The length of the sequence.
        name: The name of the argument, for the error message.
    """
    number = operator.index(index)
    if not 0 <= number < length:
        raise IndexError(f"`{name}` must be in [0, {length}), got {number}.")
    return number


def check_indices(indices: Span, length: int) -> None:
    """Raise `IndexError` if any of `indices` is not in `[0, length)`.

    Only the smallest and the largest index are compared with the bounds, so the cost for a block
    is two NumPy reductions, and constant for a range.

    >>> check_indices(range(3), 3)
    """
    if not len(indices):
        return
    if isinstance(indices, range):
        check_index(indices[0], length)
        check_index(indices[-1], length)
    else:
        check_index(indices.min(), length)
        check_index(indices.max(), length)
