"""Lookahead for keys: find many in one call where they are requested in consecutive ranges."""

from collections.abc import Callable

import numpy as np

from gristmill.types import Span

WINDOW = 65_536
"""Keys found in one call: a shuffle makes as many NumPy calls for 100 of them as for 10,000."""

GROWTH = 16
"""The next window is at most this many times as long as the current one."""


def in_windows(
    find: Callable[[range], Span], *, epoch: int, end: int | None = None
) -> Callable[[range], Span]:
    """Return a function that finds keys as `find` does, and looks ahead on consecutive requests.

    Args:
        find: Returns the keys of a range of positions.
        epoch: The number of positions of an epoch, the longest lookahead.
        end: The position after the last one; by default, lookahead ends with each epoch.
    """
    window: tuple[int, Span] = (0, range(0))  # replaced as a whole, as threads may share it

    def find_keys(positions: range) -> Span:
        nonlocal window
        first, keys = window
        if not (first <= positions.start and positions.stop <= first + len(keys)):
            # Only consecutive requests look ahead, each further than the last, so that the first
            # ones are fast. Some ranges between them may be read by other workers. With few
            # records, looking past an epoch would compute the shuffle of each epoch in the window.
            is_consecutive = first < positions.start <= first + len(keys) + WINDOW
            ahead = min(WINDOW, epoch, GROWTH * len(keys)) if is_consecutive else 0
            first = positions.start
            limit = first - first % epoch + epoch if end is None else end
            wanted = range(first, max(min(first + ahead, limit), positions.stop))
            keys = find(wanted)
            window = first, keys
        return keys[positions.start - first : positions.stop - first]

    return find_keys


def as_range(span: Span) -> range | None:
    """Return consecutive positions as a range, and `None` for others or none at all.

    >>> as_range(np.array([4, 5, 6])), as_range(np.array([4, 6, 5]))
    (range(4, 7), None)
    """
    if isinstance(span, range):
        return span if span.step == 1 and len(span) else None
    if not len(span):
        return None
    first, last = int(span[0]), int(span[-1])
    if last - first != len(span) - 1:
        return None
    return range(first, last + 1) if (np.diff(span) == 1).all() else None
