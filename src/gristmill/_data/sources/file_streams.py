"""Read files sequentially, starting at any position."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

from gristmill._data.sources.records.tfrecord import read_frames
from gristmill._data.sources.tables.arrow_values import (
    ArrowArray,
    concatenate,
    is_string_or_binary,
    load_pyarrow,
    to_dense,
    to_objects,
    translate_arrow_errors,
)
from gristmill._data.sources.tables.parquet import FORMAT_NAME, ParquetFile, open_parquet
from gristmill._io.file import FileRef
from gristmill._io.open_files import OpenFiles
from gristmill.types import AnyArray, Element

_BLOCK_ROWS = 1024
"""Rows of a table that are converted to elements at a time."""


@final
@dataclass(frozen=True)
class TFRecordStream:
    """The records of a TFRecord file. A position is the byte where the next record begins."""

    grain_fields: ClassVar[tuple[str, ...]] = ("reader_offset",)

    ref: FileRef

    @property
    def start(self) -> int:
        """The position before the first record."""
        return 0

    def read_from(self, position: int, /) -> Iterator[tuple[list[bytes], Callable[[int], int]]]:
        """Yield blocks of the records from `position` on, with verified checksums.

        Yields:
            A block of records, and a function that returns the position after the first n of them.
        """
        for records, ends in read_frames(OpenFiles([self.ref])[0], position):
            yield records, [position, *ends].__getitem__
            position = ends[-1]

    def __repr__(self) -> str:
        return f"TFRecord({self.ref.name!r})"


@final
@dataclass(frozen=True)
class ParquetStream:
    """The rows of a Parquet file, as in Grain. A position is a row group, and a row within it.

    A value is an item of the NumPy array that pyarrow makes of the column of a row group. So
    integers of a row group that contains nulls are floats.
    """

    grain_fields: ClassVar[tuple[str, ...]] = ("row_group", "index_within_row_group")

    ref: FileRef
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further arguments of `pyarrow.parquet.ParquetFile`."""

    @property
    def start(self) -> list[int]:
        """The position before the first row."""
        return [0, 0]

    def read_from(
        self, position: Sequence[int], /
    ) -> Iterator[tuple[list[Element], Callable[[int], list[int]]]]:
        """Yield blocks of the rows from `position` on.

        Yields:
            A block of rows, and a function that returns the position after the first n of them.
        """
        group, row = position
        options = {"page_checksum_verification": True, **self.options}
        file = open_parquet(OpenFiles([self.ref])[0], "`ParquetIterDataset`", **options)
        try:
            while group < file.num_row_groups:
                columns = self._read_group(file, group)
                count = min(map(len, columns.values()), default=0)
                for first in range(row, count, _BLOCK_ROWS):
                    rows = _to_rows(columns, first, min(first + _BLOCK_ROWS, count))
                    yield rows, _position_after(group, first)
                group, row = group + 1, 0
        finally:
            file.close()

    def _read_group(self, file: ParquetFile, group: int) -> dict[str, AnyArray]:
        with translate_arrow_errors(self.ref.path, FORMAT_NAME):
            table = file.read_row_group(group)
            return {
                table.field(number).name: _to_numpy(table.column(number))
                for number in range(table.num_columns)
            }

    def __repr__(self) -> str:
        return f"Parquet({self.ref.name!r})"


def _to_numpy(column: ArrowArray) -> AnyArray:
    """Return what `to_numpy` of pyarrow returns, which imports pandas, without it if possible."""
    types = load_pyarrow("Parquet files").types
    values: AnyArray | None = None
    if is_string_or_binary(column.type):
        values = to_objects(column)
    elif (types.is_integer(column.type) or types.is_floating(column.type)) and column.num_chunks:
        values = None if column.null_count else to_dense(concatenate(column.chunks))
    return column.to_numpy() if values is None else values


def _position_after(group: int, first: int) -> Callable[[int], list[int]]:
    return lambda count: [group, first + count]


def _to_rows(columns: Mapping[str, AnyArray], first: int, stop: int) -> list[Element]:
    values = zip(*(list(column[first:stop]) for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]
