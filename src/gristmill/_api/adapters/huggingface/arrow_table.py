"""Reads columns of Arrow tables, in memory or memory-mapped, by row.

A column consists of chunks. Each is inspected once, when it is first read. Rows of numbers, and of
lists that turn out to have one length, are then views of Arrow's own memory:

    chunk ─ _ChunkView ─┬─ items                   row i is items[i]
                        ├─ items, starts, counts   row i is items[starts[i]:starts[i] + counts[i]]
                        └─ is_irregular            rows that are null, hold a null, or are of
                                                   another shape
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from gristmill._api.adapters.huggingface.tables import ArrowTable
from gristmill._base.indices import as_indices
from gristmill._data.sources.record_locator import RecordLocator, Selection
from gristmill._data.sources.tables.arrow_values import (
    Dense,
    dense_of,
    load_pyarrow,
    null_rows,
    take,
    to_dense,
    to_values,
)
from gristmill.types import AnyArray, Element, Indices, Span

ArrowType: TypeAlias = Any
"""A `pyarrow.DataType`. pyarrow is optional, so its types cannot be imported here."""

ArrowArray: TypeAlias = Any
"""A `pyarrow.Array` or `pyarrow.ChunkedArray`."""


def dense_type(kind: ArrowType, shape: Sequence[int | None] = ()) -> Dense | None:
    """Return the type of the innermost list items of a column, or None if they are not numbers.

    >>> import pyarrow as pa
    >>> dense_type(pa.list_(pa.int8())), dense_type(pa.list_(pa.string()))
    (Dense(dtype=dtype('int8'), shape=()), None)
    """
    for _ in range(_get_list_depth(kind, shape)):
        if not _is_list(kind):
            return None
        kind = kind.value_type
    return dense_of(kind)


def has_nulls(array: ArrowArray) -> bool:
    """Return whether an Arrow array holds a null at any depth. Files usually store the count."""
    if array.null_count:
        return True
    kind = array.type
    if isinstance(kind, load_pyarrow("Arrow data").BaseExtensionType):
        return has_nulls(array.storage)
    is_fixed = load_pyarrow("Arrow data").types.is_fixed_size_list(kind)
    return (_is_list(kind) or is_fixed) and has_nulls(array.values)


@final
class RowSelection:
    """Selected rows of a table, located in the chunks of its columns.

    Columns may be divided into chunks differently. Rows are located once for each division.
    """

    def __init__(self, rows: Indices) -> None:
        self.rows = rows
        self._by_chunk: dict[int, list[Selection]] = {}

    def by_chunk(self, locator: RecordLocator) -> list[Selection]:
        """Return the rows grouped by chunk."""
        if id(locator) not in self._by_chunk:
            self._by_chunk[id(locator)] = locator.split(self.rows)
        return self._by_chunk[id(locator)]

    def order_by_chunk(self, locator: RecordLocator) -> Span:
        """Return the position of each row in the concatenation of the groups of `by_chunk`."""
        groups = self.by_chunk(locator)
        if len(groups) <= 1:
            return range(len(self.rows))
        positions = np.empty(len(self.rows), np.int64)
        positions[np.concatenate([rows for _, _, rows in groups])] = np.arange(len(self.rows))
        return positions


@final
class ArrowColumn:
    """Reads the values of one column by row.

    >>> import pyarrow as pa
    >>> chunks = [pa.array([[1, 2], [3, 4]]), pa.array([[5], [6, 7]])]
    >>> column = ArrowColumn(chunks[0].type, chunks, RecordLocator([2, 2]))
    >>> column.gather(RowSelection(np.array([3, 0]))).tolist()
    [[1, 2], [6, 7]]
    >>> column.gather(RowSelection(np.array([3, 2])))
    >>> column.read_values(RowSelection(np.array([2])))
    ([array([5])], [])

    Args:
        kind: The Arrow type of the column.
        chunks: Arrow arrays of this type, none of them empty.
        locator: Finds the chunk of a row. Columns with the same chunks share it.
        shape: The declared shape of each value, if values are stored as lists of lists. The first
            size may be None, which means any.
    """

    def __init__(
        self,
        kind: ArrowType,
        chunks: Sequence[ArrowArray],
        locator: RecordLocator,
        shape: Sequence[int | None] = (),
    ) -> None:
        self._kind = kind
        self._chunks = chunks
        self.locator = locator
        self._shape = tuple(shape)
        self._views: list[_ChunkView | None] = [None] * len(chunks)

    def read_all(self, max_copied_bytes: int) -> AnyArray | None:
        """Return all rows as one array, or None if they have several shapes or one is null.

        The array is a view if there is one chunk. Several chunks are copied if they take at most
        `max_copied_bytes`; if not, None is returned.
        """
        needs_copy = len(self._chunks) != 1
        if needs_copy and sum(chunk.nbytes for chunk in self._chunks) > max_copied_bytes:
            return None
        arrays: list[AnyArray] = []
        for number in range(len(self._chunks)):
            view = self._view(number)
            is_regular = view.starts is None and view.is_irregular is None
            if not is_regular or (arrays and view.items.shape[1:] != arrays[0].shape[1:]):
                return None
            arrays.append(view.items)
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays) if arrays else None

    def gather(self, selection: RowSelection) -> AnyArray | None:
        """Copy rows into one array, or return None if they have several shapes or one is null.

        The array is ordered by chunk: `selection.order_by_chunk(column.locator)` maps rows to it.
        """
        groups = selection.by_chunk(self.locator)
        gathered = None if groups else self._make_empty_array()
        num_done = 0
        for number, within, _ in groups:
            view = self._view(number)
            shape = view.get_shape(within)
            if shape is None or (gathered is not None and gathered.shape[1:] != shape):
                return None
            if gathered is None:
                gathered = np.empty((len(selection.rows), *shape), view.items.dtype)
            view.copy_to(gathered[num_done : num_done + len(within)], within)
            num_done += len(within)
        return gathered

    def _make_empty_array(self) -> AnyArray | None:
        """Return an array of no rows, or None if their shape is unknown without any row."""
        dense = dense_type(self._kind, self._shape)
        sizes = [size for size in self._shape if size is not None]
        if dense is None or len(sizes) < _get_list_depth(self._kind, self._shape):
            return None
        return np.empty((0, *sizes, *dense.shape), dense.dtype)

    def read_objects(self, selection: RowSelection) -> AnyArray:
        """Return strings or bytes as an array of Python objects, nulls as None."""
        objects: AnyArray = np.empty(len(selection.rows), object)
        for number, within, rows in selection.by_chunk(self.locator):
            objects[rows] = _take_rows(self._chunks[number], within).to_pylist()
        return objects

    def read_values(self, selection: RowSelection) -> tuple[list[Element], list[int]]:
        """Return the values of rows one by one, and which rows of numbers are irregular."""
        all_values: list[Element] = [None] * len(selection.rows)
        irregular_rows: list[int] = []
        is_dense = dense_type(self._kind, self._shape) is not None
        for number, within, rows in selection.by_chunk(self.locator):
            if is_dense:
                values, irregular = self._view(number).read_values(within)
                for index in irregular:
                    array = self._chunks[number].slice(int(within[index]), 1)
                    values[index] = self._read_irregular_value(array)
                irregular_rows += rows[irregular].tolist()
            else:
                values = to_values(_take_rows(self._chunks[number], within))
            for row, value in zip(rows.tolist(), values, strict=True):
                all_values[row] = value
        return all_values, irregular_rows

    def _read_irregular_value(self, array: ArrowArray) -> Element:
        """Return the value of an array of length 1, which may be regular without its neighbours."""
        view = _make_view(array, self._shape)
        if view.is_irregular is not None:
            return to_values(array)[0]
        return view.read_values(np.zeros(1, np.int64))[0][0]

    def _view(self, number: int) -> "_ChunkView":
        view = self._views[number]
        if view is None:
            view = self._views[number] = _make_view(self._chunks[number], self._shape)
        return view


class _ChunkView(NamedTuple):
    """The rows of a chunk in NumPy."""

    items: AnyArray
    starts: Indices | None
    counts: Indices | None
    is_irregular: NDArray[np.bool_] | None

    def get_shape(self, within: Indices) -> tuple[int, ...] | None:
        """Return the shape of some rows, or None if they have several or one is irregular."""
        if self.is_irregular is not None and self.is_irregular[within].any():
            return None
        if self.counts is None:
            return self.items.shape[1:]
        counts = self.counts[within]
        return None if (counts != counts[0]).any() else (int(counts[0]), *self.items.shape[1:])

    def copy_to(self, out: AnyArray, within: Indices) -> None:
        """Copy rows that have one shape."""
        if self.starts is None:
            # All indices are in bounds, so `clip` changes none. Without it, NumPy would buffer
            # the output in another array.
            self.items.take(within, axis=0, out=out, mode="clip")
        else:
            out[:] = self.items[self.starts[within][:, None] + np.arange(out.shape[1])]

    def read_values(self, within: Indices) -> tuple[list[Element], list[int]]:
        """Return rows one by one, and the indices of those that are irregular."""
        irregular: list[int] = []
        if self.is_irregular is not None:
            irregular = np.flatnonzero(self.is_irregular[within]).tolist()
        if self.starts is None or self.counts is None:
            return list(self.items[within]), irregular
        bounds = zip(self.starts[within].tolist(), self.counts[within].tolist(), strict=True)
        return [self.items[start : start + count].copy() for start, count in bounds], irregular


def _take_rows(array: ArrowArray, within: Indices) -> ArrowArray:
    """Return some values of an Arrow array, as a slice of it if they are consecutive."""
    if within[-1] - within[0] == len(within) - 1 and (np.diff(within) == 1).all():
        return array.slice(int(within[0]), len(within))
    return take(array, within)


def _make_view(array: ArrowArray, shape: Sequence[int | None]) -> _ChunkView:
    depth = _get_list_depth(array.type, shape)
    if not depth:
        return _ChunkView(to_dense(array), None, None, null_rows(array))
    offsets = to_dense(array.offsets).astype(np.int64)  # pyarrow's `to_numpy` imports pandas
    first, last = int(offsets[0]), int(offsets[-1])
    offsets -= first
    starts, counts = offsets[:-1], np.diff(offsets)
    inner = _view_regular_lists(array.values.slice(first, last - first), shape[1:])
    if inner is None:
        return _ChunkView(np.empty(0), starts, np.zeros_like(counts), np.ones(len(array), bool))
    items, is_null_item = inner
    is_irregular = np.zeros(len(array), bool)
    if array.null_count:
        is_irregular |= to_dense(array.is_null())
    if is_null_item is not None:
        nulls_before = np.append(0, np.cumsum(is_null_item))
        is_irregular |= nulls_before[offsets[1:]] > nulls_before[starts]
    if shape and shape[0] is not None:
        is_irregular |= counts != shape[0]
    irregular = is_irregular if is_irregular.any() else None
    if (counts == counts[0]).all():
        items = items.reshape(len(array), counts[0], *items.shape[1:])
        return _ChunkView(items, None, None, irregular)
    return _ChunkView(items, starts, counts, irregular)


def _view_regular_lists(
    array: ArrowArray, shape: Sequence[int | None]
) -> tuple[AnyArray, NDArray[np.bool_] | None] | None:
    """View lists that all have the declared shape as one array, and mark those that hold a null.

    Returns None if a list has another shape.
    """
    if not shape:
        return to_dense(array), null_rows(array)
    offsets = to_dense(array.offsets)
    if array.null_count or (np.diff(offsets) != shape[0]).any():
        return None
    first, last = int(offsets[0]), int(offsets[-1])
    inner = _view_regular_lists(array.values.slice(first, last - first), shape[1:])
    if inner is None:
        return None
    items, has_null = inner
    if has_null is not None:
        has_null = np.logical_or.reduce(has_null.reshape(len(array), -1), axis=1)
    return items.reshape(len(array), shape[0] or 0, *items.shape[1:]), has_null


def _get_list_depth(kind: ArrowType, shape: Sequence[int | None]) -> int:
    return len(shape) or int(_is_list(kind))


def _is_list(kind: ArrowType) -> bool:
    types = load_pyarrow("Arrow data").types
    return types.is_list(kind) or types.is_large_list(kind)


def make_columns(
    table: ArrowTable, names: Sequence[str], shapes: Sequence[Sequence[int | None]]
) -> list[ArrowColumn]:
    """Return columns of a table by name, each with the shape declared for it."""
    locators: dict[tuple[int, ...], RecordLocator] = {}
    columns: list[ArrowColumn] = []
    for name, shape in zip(names, shapes, strict=True):
        column = table.column(name)
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        counts = tuple(map(len, chunks))
        locator = locators.setdefault(counts, RecordLocator(counts))
        columns.append(ArrowColumn(column.type, chunks, locator, shape))
    return columns


def read_integers(column: ArrowArray) -> NDArray[np.int64]:
    """Return a `pyarrow.ChunkedArray` of integers as one array, as a view if it is one chunk.

    >>> import pyarrow as pa
    >>> read_integers(pa.chunked_array([[2, 0], [1]], pa.uint64()))
    array([2, 0, 1])
    """
    views = [to_dense(chunk).view(np.int64) for chunk in column.chunks]
    if len(views) == 1:
        return views[0]
    return np.concatenate([as_indices(range(0)), *views])
