"""Files that are read from front to back, from any place on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from gristmill._arrow import told_as_ours
from gristmill.files import FileRef, OpenFiles
from gristmill.sources._parquet import KIND, open_parquet
from gristmill.sources._tfrecord import read_frames
from gristmill.types import Element

_ROWS = 1024
"""Rows of a table that become elements in one go."""


@final
@dataclass(frozen=True)
class TFRecordStream:
    """The records of a TFRecord file; a place is the byte where the next one begins."""

    ref: FileRef

    @property
    def start(self) -> int:
        """The first byte."""
        return 0

    def read_from(self, place: int) -> Iterator[tuple[list[bytes], Callable[[int], int]]]:
        """Give the records from a byte on, checked."""
        for records, ends in read_frames(OpenFiles([self.ref])[0], place):
            yield records, [place, *ends].__getitem__
            place = ends[-1]

    def __repr__(self) -> str:
        return f"TFRecord({self.ref.name!r})"


@final
@dataclass(frozen=True)
class ParquetStream:
    """The rows of a Parquet file as Grain gives them; a place is a row group, and a row in it.

    A value is what the column of its row group gives as a NumPy array: where a group holds nulls,
    its integers are floats.
    """

    ref: FileRef
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def start(self) -> list[int]:
        """The first row of the first group."""
        return [0, 0]

    def read_from(
        self, place: Sequence[int]
    ) -> Iterator[tuple[list[Element], Callable[[int], list[int]]]]:
        """Give the rows from a place on."""
        group, row = place
        file = open_parquet(OpenFiles([self.ref])[0], "`ParquetIterDataset`", **self.options)
        try:
            while group < file.num_row_groups:
                columns = self._read_group(file, group)
                count = min(map(len, columns.values()), default=0)
                for first in range(row, count, _ROWS):
                    rows = _rows(columns, first, min(first + _ROWS, count))
                    yield rows, _place_after(group, first)
                group, row = group + 1, 0
        finally:
            file.close()

    def _read_group(self, file: Any, group: int) -> dict[str, Any]:
        with told_as_ours(self.ref.path, KIND):
            table = file.read_row_group(group)
            return {
                table.field(number).name: table.column(number).to_numpy()
                for number in range(table.num_columns)
            }

    def __repr__(self) -> str:
        return f"Parquet({self.ref.name!r})"


def _place_after(group: int, first: int) -> Callable[[int], list[int]]:
    return lambda count: [group, first + count]


def _rows(columns: Mapping[str, Any], first: int, stop: int) -> list[Element]:
    values = zip(*(list(column[first:stop]) for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]
