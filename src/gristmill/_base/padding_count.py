"""Count padding per thread, until the step that made it is measured.

A batch function knows how much of its result is padding, but not which step it belongs to. The
timer of steps takes the counts where it takes the time.
"""

import threading
from typing import NamedTuple


class PaddingCount(NamedTuple):
    """How many values padded arrays have, and how many of these are padding."""

    num_values: int = 0
    num_padding: int = 0


class _Counts(threading.local):
    pending: PaddingCount | None = None


_COUNTS = _Counts()


def count_padding(num_values: int, num_padding: int) -> None:
    """Add the values of a padded array to the counts of this thread."""
    values, padding = _COUNTS.pending or (0, 0)
    _COUNTS.pending = PaddingCount(values + num_values, padding + num_padding)


def take_padding() -> PaddingCount | None:
    """Return what this thread has counted since the last call, or `None` for nothing.

    >>> count_padding(10, 3)
    >>> count_padding(5, 0)
    >>> take_padding()
    PaddingCount(num_values=15, num_padding=3)
    >>> take_padding()
    """
    pending = _COUNTS.pending
    if pending is not None:
        _COUNTS.pending = None
    return pending
