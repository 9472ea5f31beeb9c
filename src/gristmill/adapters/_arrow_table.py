"""Columns of Arrow tables that are at hand, in memory or mapped, taken by their rows.

A column is chunks, each of which is looked at once, when it is first wanted. Rows of numbers, and
of lists that turn out to have one length, are then views of Arrow's own memory:

    chunk ─ _View ─┬─ items                   row i is items[i]
                   ├─ items, starts, counts   row i is items[starts[i]:starts[i] + counts[i]]
                   └─ holes                   rows that are null, hold one, or are of another shape
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from gristmill._arrow import (
    Dense,
    dense_of,
    load_pyarrow,
    null_rows,
    take,
    to_dense,
    to_values,
)
from gristmill._places import Places
from gristmill._span import as_indices
from gristmill.types import Indices, Span

Parts = list[tuple[int, Indices, Indices]]
"""For each chunk that is wanted: its number, which rows there, and where they go."""


def dense_type(kind: Any, shape: Sequence[int | None] = ()) -> Dense | None:
    """Tell what is in the innermost lists of a column, or that it is not numbers.

    >>> import pyarrow as pa
    >>> dense_type(pa.list_(pa.int8())), dense_type(pa.list_(pa.string()))
    (Dense(dtype=dtype('int8'), shape=()), None)
    """
    for _ in range(_depth(kind, shape)):
        if not _is_list(kind):
            return None
        kind = kind.value_type
    return dense_of(kind)


def has_nulls(array: Any) -> bool:
    """Tell whether an Arrow array holds a null anywhere; mostly its file says so."""
    if array.null_count:
        return True
    kind = array.type
    if isinstance(kind, load_pyarrow("Arrow data").BaseExtensionType):
        return has_nulls(array.storage)
    is_fixed = load_pyarrow("Arrow data").types.is_fixed_size_list(kind)
    return (_is_list(kind) or is_fixed) and has_nulls(array.values)


@final
class Picked:
    """Some rows of a table whose columns may be cut into chunks differently."""

    def __init__(self, rows: Indices) -> None:
        self.rows = rows
        self._parts: dict[int, Parts] = {}

    def parts(self, places: Places) -> Parts:
        """Give the rows by chunk."""
        if id(places) not in self._parts:
            self._parts[id(places)] = places.split(self.rows)
        return self._parts[id(places)]

    def places_of(self, places: Places) -> Span:
        """Give where each row is, once those of one chunk are put after those of another."""
        parts = self.parts(places)
        if len(parts) <= 1:
            return range(len(self.rows))
        found = np.empty(len(self.rows), np.int64)
        found[np.concatenate([rows for _, _, rows in parts])] = np.arange(len(self.rows))
        return found


@final
class ArrowColumn:
    """One column: its values, taken by row.

    >>> import pyarrow as pa
    >>> chunks = [pa.array([[1, 2], [3, 4]]), pa.array([[5], [6, 7]])]
    >>> column = ArrowColumn(chunks[0].type, chunks, Places([2, 2]))
    >>> column.gather(Picked(np.array([3, 0]))).tolist()
    [[1, 2], [6, 7]]
    >>> column.gather(Picked(np.array([3, 2])))
    >>> column.values(Picked(np.array([2])))
    ([array([5])], [])

    Args:
        kind: The Arrow type of the column.
        chunks: Arrow arrays of this type, none of them empty.
        places: Which rows are in which chunk; columns of the same chunks share it.
        shape: Of each value, where it is declared and stored as lists of lists; the first size
            may be open.
    """

    def __init__(
        self, kind: Any, chunks: Sequence[Any], places: Places, shape: Sequence[int | None] = ()
    ) -> None:
        self._kind = kind
        self._chunks = chunks
        self.places = places
        self._shape = tuple(shape)
        self._views: list[_View | None] = [None] * len(chunks)

    def whole(self, most_bytes: int) -> NDArray[Any] | None:
        """Give all rows as one array, if they have one shape and none is null.

        It is a view where they are in one chunk; else a copy, if that takes no more than so much.
        """
        if len(self._chunks) != 1 and sum(chunk.nbytes for chunk in self._chunks) > most_bytes:
            return None
        arrays: list[NDArray[Any]] = []
        for number in range(len(self._chunks)):
            view = self._view(number)
            is_plain = view.starts is None and view.holes is None
            if not is_plain or (arrays and view.items.shape[1:] != arrays[0].shape[1:]):
                return None
            arrays.append(view.items)
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays) if arrays else None

    def gather(self, picked: Picked) -> NDArray[Any] | None:
        """Copy rows into one array, if they have one shape and none is null.

        They are put there chunk by chunk: `picked.places_of(column.places)` tells where.
        """
        parts = picked.parts(self.places)
        made = None if parts else self._none()
        done = 0
        for number, within, _ in parts:
            view = self._view(number)
            shape = view.shape_of(within)
            if shape is None or (made is not None and made.shape[1:] != shape):
                return None
            if made is None:
                made = np.empty((len(picked.rows), *shape), view.items.dtype)
            view.copy_to(made[done : done + len(within)], within)
            done += len(within)
        return made

    def _none(self) -> NDArray[Any] | None:
        """Give no row at all, if the shape of the rows is known without any."""
        dense = dense_type(self._kind, self._shape)
        sizes = [size for size in self._shape if size is not None]
        is_open = len(sizes) < _depth(self._kind, self._shape)
        return (
            None if dense is None or is_open else np.empty((0, *sizes, *dense.shape), dense.dtype)
        )

    def objects(self, picked: Picked) -> NDArray[Any]:
        """Give texts or bytes as Python's own, nulls as None."""
        made: NDArray[Any] = np.empty(len(picked.rows), object)
        for number, within, rows in picked.parts(self.places):
            made[rows] = _taken(self._chunks[number], within).to_pylist()
        return made

    def values(self, picked: Picked) -> tuple[list[Any], list[int]]:
        """Give the values of rows one by one, and which of them are holes among numbers."""
        made: list[Any] = [None] * len(picked.rows)
        holes: list[int] = []
        is_dense = dense_type(self._kind, self._shape) is not None
        for number, within, rows in picked.parts(self.places):
            if is_dense:
                values, found = self._view(number).values(within)
                for place in found:
                    values[place] = self._odd(self._chunks[number].slice(int(within[place]), 1))
                holes += rows[found].tolist()
            else:
                values = to_values(_taken(self._chunks[number], within))
            for row, value in zip(rows.tolist(), values, strict=True):
                made[row] = value
        return made, holes

    def _odd(self, array: Any) -> Any:
        """Give the one value of an array: by itself it may be as declared."""
        view = _view_of(array, self._shape)
        if view.holes is not None:
            return to_values(array)[0]
        return view.values(np.zeros(1, np.int64))[0][0]

    def _view(self, number: int) -> "_View":
        view = self._views[number]
        if view is None:
            view = self._views[number] = _view_of(self._chunks[number], self._shape)
        return view


class _View(NamedTuple):
    """The rows of a chunk in NumPy."""

    items: NDArray[Any]
    starts: Indices | None
    counts: Indices | None
    holes: NDArray[np.bool_] | None

    def shape_of(self, within: Indices) -> tuple[int, ...] | None:
        """Give the one shape of some rows, or None if they have several or one is a hole."""
        if self.holes is not None and self.holes[within].any():
            return None
        if self.counts is None:
            return self.items.shape[1:]
        counts = self.counts[within]
        return None if (counts != counts[0]).any() else (int(counts[0]), *self.items.shape[1:])

    def copy_to(self, out: NDArray[Any], within: Indices) -> None:
        """Copy rows that have one shape."""
        if self.starts is None:
            # `clip` changes nothing, as all are in bounds, but by default NumPy makes a copy.
            self.items.take(within, axis=0, out=out, mode="clip")
        else:
            out[:] = self.items[self.starts[within][:, None] + np.arange(out.shape[1])]

    def values(self, within: Indices) -> tuple[list[Any], list[int]]:
        """Give rows one by one, and the places of those that are none."""
        holes = [] if self.holes is None else np.flatnonzero(self.holes[within]).tolist()
        if self.starts is None or self.counts is None:
            return list(self.items[within]), holes
        bounds = zip(self.starts[within].tolist(), self.counts[within].tolist(), strict=True)
        return [self.items[start : start + count].copy() for start, count in bounds], holes


def _taken(array: Any, within: Indices) -> Any:
    """Give some values of an Arrow array; as a slice of it, if they follow each other."""
    if within[-1] - within[0] == len(within) - 1 and (np.diff(within) == 1).all():
        return array.slice(int(within[0]), len(within))
    return take(array, within)


def _view_of(array: Any, shape: Sequence[int | None]) -> _View:
    depth = _depth(array.type, shape)
    if not depth:
        return _View(to_dense(array), None, None, null_rows(array))
    offsets = to_dense(array.offsets).astype(np.int64)  # pyarrow's `to_numpy` imports pandas
    first, last = int(offsets[0]), int(offsets[-1])
    offsets -= first
    starts, counts = offsets[:-1], np.diff(offsets)
    inner = _regular(array.values.slice(first, last - first), shape[1:])
    if inner is None:
        return _View(np.empty(0), starts, np.zeros_like(counts), np.ones(len(array), bool))
    items, holes_within = inner
    holes = np.zeros(len(array), bool)
    if array.null_count:
        holes |= to_dense(array.is_null())
    if holes_within is not None:
        before = np.append(0, np.cumsum(holes_within))
        holes |= before[offsets[1:]] > before[starts]
    if shape and shape[0] is not None:
        holes |= counts != shape[0]
    found = holes if holes.any() else None
    if (counts == counts[0]).all():
        return _View(items.reshape(len(array), counts[0], *items.shape[1:]), None, None, found)
    return _View(items, starts, counts, found)


def _regular(
    array: Any, shape: Sequence[int | None]
) -> tuple[NDArray[Any], NDArray[np.bool_] | None] | None:
    """View lists that all have the declared shape as one array; tell which hold a null."""
    if not shape:
        return to_dense(array), null_rows(array)
    offsets = to_dense(array.offsets)
    if array.null_count or (np.diff(offsets) != shape[0]).any():
        return None
    first, last = int(offsets[0]), int(offsets[-1])
    inner = _regular(array.values.slice(first, last - first), shape[1:])
    if inner is None:
        return None
    items, holes = inner
    if holes is not None:
        holes = np.logical_or.reduce(holes.reshape(len(array), -1), axis=1)
    return items.reshape(len(array), shape[0] or 0, *items.shape[1:]), holes


def _depth(kind: Any, shape: Sequence[int | None]) -> int:
    return len(shape) or int(_is_list(kind))


def _is_list(kind: Any) -> bool:
    types = load_pyarrow("Arrow data").types
    return types.is_list(kind) or types.is_large_list(kind)


def columns_of(
    table: Any, names: Sequence[str], shapes: Sequence[Sequence[int | None]]
) -> list[ArrowColumn]:
    """Give columns of a pyarrow table by name, each with the shape declared for it."""
    known: dict[tuple[int, ...], Places] = {}
    columns: list[ArrowColumn] = []
    for name, shape in zip(names, shapes, strict=True):
        column = table.column(name)
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        counts = tuple(map(len, chunks))
        places = known.setdefault(counts, Places(counts))
        columns.append(ArrowColumn(column.type, chunks, places, shape))
    return columns


def integers_of(column: Any) -> NDArray[np.int64]:
    """Give a chunked column of integers as one array, as a view if it is one chunk.

    >>> import pyarrow as pa
    >>> integers_of(pa.chunked_array([[2, 0], [1]], pa.uint64()))
    array([2, 0, 1])
    """
    views = [to_dense(chunk).view(np.int64) for chunk in column.chunks]
    if len(views) == 1:
        return views[0]
    return np.concatenate([as_indices(range(0)), *views])
