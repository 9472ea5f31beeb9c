"""Records of several files, one file after the other."""

from collections.abc import Callable, Sequence
from typing import SupportsIndex, TypeVar, final

import numpy as np

from gristmill._span import as_indices
from gristmill.types import Indices, Span

T = TypeVar("T")


@final
class Places:
    """Which file a record is in, and where there.

    >>> places = Places([3, 5])
    >>> len(places), places.locate(4)
    (8, (1, 1))
    >>> places.split([7, 0, 3])[1]
    (1, array([4, 0]), array([0, 2]))
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self._ends = np.cumsum(np.array(counts, dtype=np.int64))
        self._starts = self._ends - np.array(counts, dtype=np.int64)
        self._total = int(self._ends[-1]) if len(self._ends) else 0

    def __len__(self) -> int:
        return self._total

    def check(self, index: SupportsIndex) -> int:
        """Take an index that is in bounds."""
        number = index.__index__()
        if not 0 <= number < self._total:
            raise IndexError(f"`index` must be in [0, {self._total}), got {number}.")
        return number

    def locate(self, index: SupportsIndex) -> tuple[int, int]:
        """Give the number of the file, and the index within."""
        number = self.check(index)
        home = int(np.searchsorted(self._ends, number, side="right"))
        return home, number - int(self._starts[home])

    def split(self, indices: Span | Sequence[int]) -> list[tuple[int, Indices, Indices]]:
        """Give for each file that has any: its number, which there, and their rows."""
        numbers = as_indices(indices)
        if not len(numbers):
            return []
        lowest, highest = int(numbers.min()), int(numbers.max())
        self.check(lowest)
        self.check(highest)
        if len(self._ends) == 1:
            return [(0, numbers, np.arange(len(numbers)))]
        homes = np.searchsorted(self._ends, numbers, side="right")
        order = np.argsort(homes, kind="stable")
        sorted_homes = homes[order]
        heads = np.flatnonzero(np.diff(sorted_homes, prepend=-1))
        return [
            (int(sorted_homes[head]), numbers[rows] - self._starts[sorted_homes[head]], rows)
            for head, rows in zip(heads, np.split(order, heads[1:]), strict=True)
        ]


def gather(
    places: Places,
    indices: Span | Sequence[int],
    read: Callable[[int, Indices], Sequence[T]],
) -> list[T]:
    """Read each file once, and give the records in the order asked for.

    >>> files = ["abc", "defgh"]
    >>> gather(Places([3, 5]), [7, 0, 3], lambda file, within: [files[file][i] for i in within])
    ['h', 'a', 'd']
    """
    parts = places.split(indices)
    if len(parts) == 1:
        return list(read(parts[0][0], parts[0][1]))
    made: list[T | None] = [None] * sum(len(rows) for _, _, rows in parts)
    for number, within, rows in parts:
        for row, record in zip(rows.tolist(), read(number, within), strict=True):
            made[row] = record
    return made  # pyright: ignore[reportReturnType]  (every place was filled)
