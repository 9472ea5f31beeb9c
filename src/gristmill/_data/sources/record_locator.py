"""Map the indices of a source to the files that hold its records."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, SupportsIndex, TypeVar, final

import numpy as np

from gristmill._base.indices import as_indices, check_index, check_indices
from gristmill.types import Indices, Span

T = TypeVar("T")


class Selection(NamedTuple):
    """The records of one file that a request for many records selects."""

    file: int
    """Number of the file."""
    indices: Indices
    """Indices of the records within the file."""
    rows: Indices
    """Where these records are in the requested order."""


@final
class RecordLocator:
    """Locates records in files that follow one another.

    The files may also be other consecutive groups of records, such as the chunks of a table.

    >>> locator = RecordLocator([3, 5])
    >>> len(locator), locator.locate(4)
    (8, (1, 1))
    >>> locator.split([7, 0, 3])[1]
    Selection(file=1, indices=array([4, 0]), rows=array([0, 2]))

    Args:
        counts: The number of records in each file.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self._ends = np.cumsum(np.array(counts, dtype=np.int64))
        self._starts = self._ends - np.array(counts, dtype=np.int64)
        self._total = int(self._ends[-1]) if len(self._ends) else 0

    def __len__(self) -> int:
        return self._total

    def locate(self, index: SupportsIndex) -> tuple[int, int]:
        """Return the number of the file that holds a record, and the record's index within it.

        Raises:
            IndexError: If `index` is out of bounds.
        """
        number = check_index(index, self._total)
        file = int(np.searchsorted(self._ends, number, side="right"))
        return file, number - int(self._starts[file])

    def split(self, indices: Span | Sequence[int]) -> list[Selection]:
        """Group indices by file. Files without a requested record are left out.

        Raises:
            IndexError: If one of `indices` is out of bounds.
        """
        numbers = as_indices(indices)
        if not len(numbers):
            return []
        check_indices(numbers, self._total)
        if len(self._ends) == 1:
            return [Selection(0, numbers, np.arange(len(numbers)))]
        files = np.searchsorted(self._ends, numbers, side="right")
        order = np.argsort(files, kind="stable")
        sorted_files = files[order]
        heads = np.flatnonzero(np.diff(sorted_files, prepend=-1))
        return [
            Selection(
                int(sorted_files[head]), numbers[rows] - self._starts[sorted_files[head]], rows
            )
            for head, rows in zip(heads, np.split(order, heads[1:]), strict=True)
        ]


def gather(
    locator: RecordLocator,
    indices: Span | Sequence[int],
    read: Callable[[int, Indices], Sequence[T]],
) -> list[T]:
    """Return the records at `indices`, in that order, with one `read` per file.

    >>> files = ["abc", "defgh"]
    >>> locator = RecordLocator([3, 5])
    >>> gather(locator, [7, 0, 3], lambda file, within: [files[file][i] for i in within])
    ['h', 'a', 'd']

    Args:
        locator: Where the records are.
        indices: The records to read.
        read: Called with the number of a file and indices within it. Returns the records.
    """
    selections = locator.split(indices)
    if len(selections) == 1:
        return list(read(selections[0].file, selections[0].indices))
    records: list[T | None] = [None] * sum(len(selection.rows) for selection in selections)
    for file, within, rows in selections:
        for row, record in zip(rows.tolist(), read(file, within), strict=True):
            records[row] = record
    return records  # pyright: ignore[reportReturnType]  (every row has been filled)
