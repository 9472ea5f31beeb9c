"""Random access to the rows of a table that is stored in chunks.

TableSource ─ Table ─┬─ TableFiles                    reads chunks: Parquet, Arrow
                     └─ ChunkCache | _JoinedColumns   loaded chunks, or one array per column
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, SupportsIndex, TypeVar, final

import numpy as np

from gristmill._base.indices import as_indices, check_index, check_indices
from gristmill._base.trees.columns import Columns
from gristmill._data.sources.record_location import RecordLocation
from gristmill._data.sources.record_locator import RecordLocator, Selection
from gristmill._data.sources.tables.arrow_values import (
    ArrowArray,
    Dense,
    concatenate,
    dense_of,
    is_string_or_binary,
    null_rows,
    take_slices,
    to_dense,
    to_objects,
    to_values,
)
from gristmill._data.sources.tables.chunk_cache import ChunkCache
from gristmill._data.sources.tables.table_files import ChunkSpec, TableFiles, TableLayout
from gristmill.errors import CorruptFileError
from gristmill.types import AnyArray, Element, Indices, Span

T = TypeVar("T")

_STRING_OVERHEAD_BYTES = 60
"""Size of a Python string without its characters, and of a reference to it."""

_CHUNK_OVERHEAD_BYTES = 4096
"""Size of pyarrow's objects for a chunk, even if its data are in a mapped file."""


class TableSource:
    """Random access to the rows of a table, as dicts of its columns. Threads may share it.

    A base class for sources over files of tables.

    Args:
        files: The files of the table.
        description: The files in short, for the `repr`.
        cache_bytes: How much memory each process uses for chunks.
    """

    def __init__(self, files: TableFiles, *, description: str, cache_bytes: int) -> None:
        self._files = files
        self._description = description
        self._cache_bytes = cache_bytes
        self._layout: TableLayout | None = None
        self._reset()

    def _reset(self) -> None:
        """Create the attributes that a pickled copy does not contain."""
        self._loaded: Table | None = None
        self._lock = threading.Lock()

    @property
    def is_columnar(self) -> bool:
        """Whether the loader reads whole columns (numbers and times) instead of records."""
        return self._table.is_columnar

    def read_columns(self, indices: Span) -> Columns:
        """Return many records as columns, if `is_columnar`.

        Args:
            indices: The records, all of them in bounds.
        """
        return self._table.read_columns(indices)

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: SupportsIndex) -> Element:
        table = self._table
        return table.read_rows([check_index(index, len(table))])[0]

    def __getitems__(self, indices: Sequence[int] | Indices) -> list[Element]:
        return self._table.read_rows(indices)

    def location(self, index: SupportsIndex) -> RecordLocation:
        """Return the file of a record, and where it is in that file.

        Args:
            index: The index of the record.
        """
        return self._table.location(index)

    def __getstate__(self) -> dict[str, object]:
        excluded = ("_loaded", "_lock")
        return {name: value for name, value in vars(self).items() if name not in excluded}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._reset()

    def __repr__(self) -> str:  # part of checkpoints: without the folder, as data may move
        columns = self._files.columns
        selected = "" if columns is None else f", columns={columns}"
        return f"{type(self).__name__}({self._description}{selected})"

    @property
    def _table(self) -> "Table":
        if self._loaded is None:
            with self._lock:  # one thread reads the layout while the others wait
                if self._loaded is None:
                    layout = self._layout = self._layout or self._files.read_layout()
                    self._loaded = Table(self._files, layout, self._cache_bytes)
        return self._loaded


class _LoadedChunk(NamedTuple):
    """The columns of a chunk."""

    arrays: list[ArrowArray]
    views: list[AnyArray | None]
    """In NumPy: columns of numbers without nulls, and columns of strings that are not mapped."""


@final
class Table:
    """A table in files, and the chunks of it that are loaded. Threads may share it.

    Args:
        files: The files of the table.
        layout: Their schema and chunks.
        cache_bytes: How much memory to use for chunks.
    """

    def __init__(self, files: TableFiles, layout: TableLayout, cache_bytes: int) -> None:
        self._locator = RecordLocator([chunk.num_rows for chunk in layout.chunks])
        self._files, self._layout = files, layout
        self._names: list[str] = layout.schema.names
        self._dense = [dense_of(arrow_type) for arrow_type in layout.schema.types]
        self._is_string = [is_string_or_binary(arrow_type) for arrow_type in layout.schema.types]
        dense = [one for one in self._dense if one is not None]
        num_columnar = len(dense) + sum(self._is_string)
        self.is_columnar = 0 < num_columnar == len(self._names) and not layout.has_nulls
        num_bytes = len(self) * sum(one.num_bytes for one in dense)
        fits = len(layout.chunks) > 1 and num_bytes <= cache_bytes
        # Strings in a mapped file need no memory; as Python objects they would.
        is_worth_joining = not (layout.is_mapped and any(self._is_string))
        self._joined: _JoinedColumns | None = None
        if fits and is_worth_joining and self.is_columnar:
            self._joined = _JoinedColumns(
                layout.chunks, self._dense, max_bytes=cache_bytes, check=self._check_chunk
            )
        self._chunks = ChunkCache[_LoadedChunk](cache_bytes)

    def __len__(self) -> int:
        return len(self._locator)

    def location(self, index: SupportsIndex) -> RecordLocation:
        """Return the file of a row, and the number of the row in it."""
        number, within = self._locator.locate(index)
        chunks, file = self._layout.chunks, self._layout.chunks[number].file
        before = sum(chunk.num_rows for chunk in chunks[:number] if chunk.file == file)
        return RecordLocation(self._files.files.refs[file].address, before + within)

    def read_columns(self, indices: Span | Sequence[int]) -> Columns:
        """Return rows as columns.

        The columns refer to the joined columns, or to the one chunk that contains all rows, or else
        are a copy.
        """
        return self._read_or_explain(self._read_columns, indices)

    def read_rows(self, indices: Span | Sequence[int]) -> list[Element]:
        """Return rows as dicts."""
        if self.is_columnar:
            return self.read_columns(indices).rows()
        return self._read_or_explain(self._read_rows, indices)

    def _read_or_explain(
        self, read: Callable[[Span | Sequence[int]], T], indices: Span | Sequence[int]
    ) -> T:
        """Read rows, or name the file that contains a string that is not UTF-8."""
        try:
            return read(indices)
        except UnicodeDecodeError as error:
            for index in indices if len(indices) > 1 else ():
                self._read_or_explain(read, [int(index)])  # raises for the first such row
            chunk = self._layout.chunks[self._locator.locate(indices[0])[0]]
            raise CorruptFileError(
                f"A string is not UTF-8: {error.reason}. Write the file again, with binary values "
                "where they are not text.",
                path=self._files.files.refs[chunk.file].path,
            ) from None

    def _read_columns(self, indices: Span | Sequence[int]) -> Columns:
        wanted = as_indices(indices)
        if self._joined is not None:
            check_indices(wanted, len(self))
            arrays = self._joined.read(wanted, self._load)
            if arrays is not None:
                return self._as_columns(arrays, indices if isinstance(indices, range) else wanted)
            self._joined = None
        selections = self._locator.split(wanted)
        if len(selections) == 1:
            number, within, _ = selections[0]
            start = int(within[0])
            step = indices.step if isinstance(indices, range) else 0
            picks = range(start, start + step * len(within), step) if step else within
            chunk = self._chunk(number)
            if all(view is not None for view in chunk.views):
                return self._as_columns(chunk.views, picks, check=self._check_of(number))
        copied = [
            np.empty(len(wanted), object)
            if dense is None
            else np.empty((len(wanted), *dense.shape), dense.dtype)
            for dense in self._dense
        ]
        self._check_unchanged(selections)
        for number, within, rows in selections:
            for array, values in zip(copied, self._take(number, within, True), strict=True):
                array[rows] = values if isinstance(values, np.ndarray) else _to_values([values])
        self._check_unchanged(selections)
        return self._as_columns(copied, range(len(wanted)))

    def _read_rows(self, indices: Span | Sequence[int]) -> list[Element]:
        selections = self._locator.split(indices)
        # Rows that are taken from one of several chunks must not keep the whole chunk in memory.
        may_share = len(selections) == 1 or self._layout.is_mapped
        self._check_unchanged(selections)
        taken = [self._take(number, within, may_share) for number, within, _ in selections]
        columns = [_to_values(column) for column in zip(*taken, strict=True)]
        self._check_unchanged(selections)
        records = [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]
        if len(selections) < 2:
            return records
        ordered: list[Element] = [None] * len(records)
        order = [row for selection in selections for row in selection.rows.tolist()]
        for row, record in zip(order, records, strict=True):
            ordered[row] = record
        return ordered

    def _as_columns(
        self,
        arrays: Sequence[AnyArray | None],
        picks: Span,
        check: Callable[[], None] | None = None,
    ) -> Columns:
        return Columns.of(dict(zip(self._names, arrays, strict=True)), picks, check=check)

    def _check_of(self, number: int) -> Callable[[], None] | None:
        """Return a function that raises if the mapped file of a chunk has changed."""
        return partial(self._check_chunk, number) if self._layout.is_mapped else None

    def _check_chunk(self, number: int) -> None:
        if self._layout.is_mapped:
            self._files.check_unchanged(self._layout.chunks[number].file)

    def _check_unchanged(self, selections: Sequence[Selection]) -> None:
        """Raise if one of the mapped files that contain some rows has changed."""
        if self._layout.is_mapped:
            for file in {self._layout.chunks[number].file for number, _, _ in selections}:
                self._files.check_unchanged(file)

    def _take(
        self, number: int, within: Indices, may_share: bool
    ) -> list[AnyArray | list[ArrowArray]]:
        """Take rows of a chunk: each column as a NumPy array or as some Arrow arrays."""
        chunk = self._chunk(number)
        return [
            take_slices(array, within, may_share=may_share) if view is None else view[within]
            for array, view in zip(chunk.arrays, chunk.views, strict=True)
        ]

    def _chunk(self, number: int) -> _LoadedChunk:
        return self._chunks.get(number, lambda: self._load(number))

    def _load(self, number: int) -> tuple[_LoadedChunk, int]:
        """Read a chunk; return it with its size in bytes."""
        spec = self._layout.chunks[number]
        arrays = self._files.read_chunk(self._layout, spec)
        if any(len(array) != spec.num_rows for array in arrays):
            raise CorruptFileError(
                f"The file contains {len(arrays[0]):,} rows where its metadata state "
                f"{spec.num_rows:,}. Write it again.",
                path=self._files.files.refs[spec.file].path,
            )
        views = [
            None if dense is None or null_rows(array) is not None else to_dense(array)
            for array, dense in zip(arrays, self._dense, strict=True)
        ]
        if self._layout.is_mapped:
            return _LoadedChunk(arrays, views), _CHUNK_OVERHEAD_BYTES
        num_strings = 0
        for column, array in enumerate(arrays):
            if self._is_string[column]:  # as objects from the start, so that they are created once
                views[column] = to_objects(array)
                num_strings += len(array)
        num_bytes = sum(array.nbytes for array in arrays) + num_strings * _STRING_OVERHEAD_BYTES
        remaining = [
            None if is_string and view is not None else array
            for array, view, is_string in zip(arrays, views, self._is_string, strict=True)
        ]
        return _LoadedChunk(remaining, views), num_bytes + _CHUNK_OVERHEAD_BYTES


@final
class _JoinedColumns:
    """One array per column with all rows of the table, filled chunk by chunk.

    A batch is then one gather, whichever chunks its rows are in. The operating system allocates the
    memory of an array only where it is written.
    """

    def __init__(
        self,
        chunks: Sequence[ChunkSpec],
        dense: Sequence[Dense | None],
        *,
        max_bytes: int,
        check: Callable[[int], None],
    ) -> None:
        self._starts = np.cumsum([0, *(chunk.num_rows for chunk in chunks)])
        count = int(self._starts[-1])
        self._arrays = [
            np.empty(count, object) if one is None else np.empty((count, *one.shape), one.dtype)
            for one in dense
        ]
        # The values are `None` and count as 0 bytes: the cache records which chunks are filled.
        self._filled = ChunkCache[None](0)
        self._num_chunks = sum(chunk.num_rows > 0 for chunk in chunks)
        self._remaining_bytes = max_bytes
        self._check = check
        self._has_failed = False

    def read(
        self, indices: Indices, load: Callable[[int], tuple[_LoadedChunk, int]]
    ) -> list[AnyArray] | None:
        """Return the arrays, filled at least at `indices`.

        Returns:
            `None` if the columns cannot be joined: strings need more memory than allowed, or one of
            them is not UTF-8.
        """
        if len(self._filled) < self._num_chunks and not self._has_failed:
            numbers = np.unique(np.searchsorted(self._starts, indices, side="right") - 1)
            for number in numbers.tolist():
                self._filled.get(number, partial(self._fill, number, load))
        return None if self._has_failed else self._arrays

    def _fill(
        self, number: int, load: Callable[[int], tuple[_LoadedChunk, int]]
    ) -> tuple[None, int]:
        chunk, num_bytes = load(number)
        self._remaining_bytes -= num_bytes
        if self._remaining_bytes < 0 or any(view is None for view in chunk.views):
            self._has_failed = True
        else:
            rows = slice(self._starts[number], self._starts[number + 1])
            for array, view in zip(self._arrays, chunk.views, strict=True):
                array[rows] = view
            self._check(number)
        return None, 0


def _to_values(taken: Sequence[AnyArray | list[ArrowArray]]) -> list[Element]:
    """Return the values of a column that were taken from some chunks."""
    arrays = [values for values in taken if isinstance(values, np.ndarray)]
    if len(arrays) == len(taken):
        joined: AnyArray = np.concatenate(arrays)
        return list(joined)
    if not arrays:
        return to_values(concatenate([array for values in taken for array in values]))
    return [value for values in taken for value in _to_values([values])]  # some chunks have nulls
