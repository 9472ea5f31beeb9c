"""Rows of tables that are stored in pieces, each of which is read as a whole.

TableSource ─ Table ─┬─ TableFiles    where pieces come from: Parquet, Arrow
                     └─ Kept | Whole  what was read: pieces, or one array for each column
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, SupportsIndex, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from gristmill._arrow import (
    Dense,
    dense_of,
    is_text,
    join,
    null_rows,
    pick,
    to_dense,
    to_objects,
    to_values,
)
from gristmill._columns import Columns
from gristmill._places import Places
from gristmill._span import as_indices
from gristmill.errors import CorruptFileError
from gristmill.sources._kept import Kept
from gristmill.sources._parts import Layout, Part, TableFiles
from gristmill.types import Element, Indices, Span

T = TypeVar("T")

_TEXT_OVERHEAD = 60
"""What Python adds to the bytes of a text, and a reference to it."""

_OVERHEAD = 4096
"""What pyarrow's objects take for a piece, even where its data are in a mapped file."""


class TableSource:
    """Random access to the rows of a table, as dicts of its columns; a base for those of files."""

    def __init__(self, files: TableFiles, *, told: str, cache_bytes: int) -> None:
        self._files = files
        self._told = told
        self._cache_bytes = cache_bytes
        self._layout: Layout | None = None
        self._forget()

    def _forget(self) -> None:
        self._known: Table | None = None
        self._lock = threading.Lock()

    @property
    def is_columnar(self) -> bool:
        """Whether the loader takes whole columns: numbers and times; else it takes records."""
        return self._table.is_columnar

    def read_columns(self, indices: Span) -> Columns:
        """Give many records as columns; ask for it only where `is_columnar`."""
        return self._table.read_columns(indices)

    def __len__(self) -> int:
        return len(self._table.places)

    def __getitem__(self, index: SupportsIndex) -> Element:
        table = self._table
        return table.rows([table.places.check(index)])[0]

    def __getitems__(self, indices: Sequence[int] | Indices) -> list[Element]:
        return self._table.rows(indices)

    def __getstate__(self) -> dict[str, Any]:
        gone = ("_known", "_lock")
        return {name: value for name, value in vars(self).items() if name not in gone}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def __repr__(self) -> str:  # goes into checkpoints: no folder, which may be another
        columns = self._files.columns
        chosen = "" if columns is None else f", columns={columns}"
        return f"{type(self).__name__}({self._told}{chosen})"

    @property
    def _table(self) -> "Table":
        if self._known is None:
            with self._lock:  # one thread looks; the others wait for what it finds
                if self._known is None:
                    layout = self._layout = self._layout or self._files.survey()
                    self._known = Table(self._files, layout, self._cache_bytes)
        return self._known


class _Piece(NamedTuple):
    """The columns of a part: as Arrow has them, and in NumPy those of numbers without nulls."""

    arrays: list[Any]
    views: list[NDArray[Any] | None]


@final
class Table:
    """A table in files, and what was read of it so far. Threads may share it."""

    def __init__(self, files: TableFiles, layout: Layout, cache_bytes: int) -> None:
        self.places = Places([part.num_rows for part in layout.parts])
        self._files, self._layout = files, layout
        self._names: list[str] = layout.schema.names
        self._dense = [dense_of(kind) for kind in layout.schema.types]
        self._is_text = [is_text(kind) for kind in layout.schema.types]
        dense = [one for one in self._dense if one is not None]
        num_fit = len(dense) + sum(self._is_text)
        self.is_columnar = 0 < num_fit == len(self._names) and not layout.has_nulls
        num_bytes = len(self.places) * sum(one.num_bytes for one in dense)
        fits = len(layout.parts) > 1 and num_bytes <= cache_bytes
        # Texts in a mapped file take no memory where they are; as objects they would.
        is_made = not (layout.is_mapped and any(self._is_text))
        self._whole: _Whole | None = None
        if fits and is_made and self.is_columnar:
            self._whole = _Whole(layout.parts, self._dense, limit=cache_bytes)
        self._pieces = Kept[_Piece](cache_bytes)

    def read_columns(self, indices: Span | Sequence[int]) -> Columns:
        """Give rows as columns: picks of all rows, or of the one piece they are in, or a copy."""
        return self._explained(self._read_columns, indices)

    def rows(self, indices: Span | Sequence[int]) -> list[Element]:
        """Give rows as dicts."""
        if self.is_columnar:
            return self.read_columns(indices).rows()
        return self._explained(self._rows, indices)

    def _explained(
        self, read: Callable[[Span | Sequence[int]], T], indices: Span | Sequence[int]
    ) -> T:
        """Read rows, or say which file has a text among them that is none."""
        try:
            return read(indices)
        except UnicodeDecodeError as error:
            for index in indices if len(indices) > 1 else ():
                self._explained(read, [int(index)])  # finds the file
            part = self._layout.parts[self.places.locate(indices[0])[0]]
            raise CorruptFileError(
                f"A text is not UTF-8: {error.reason}. Write the file anew, with binary values "
                "where they are no text.",
                path=self._files.files.refs[part.file].path,
            ) from None

    def _read_columns(self, indices: Span | Sequence[int]) -> Columns:
        wanted = as_indices(indices)
        if self._whole is not None:
            for bound in (wanted.min(), wanted.max()) if len(wanted) else ():
                self.places.check(bound)
            arrays = self._whole.read(wanted, self._load)
            if arrays is not None:
                return self._named(arrays, indices if isinstance(indices, range) else wanted)
            self._whole = None
        parts = self.places.split(wanted)
        if len(parts) == 1:
            number, within, _ = parts[0]
            start = int(within[0])
            step = indices.step if isinstance(indices, range) else 0
            picks = range(start, start + step * len(within), step) if step else within
            piece = self._piece(number)
            if all(view is not None for view in piece.views):
                return self._named(piece.views, picks)
        made = [
            np.empty(len(wanted), object)
            if dense is None
            else np.empty((len(wanted), *dense.shape), dense.dtype)
            for dense in self._dense
        ]
        for number, within, rows in parts:
            for array, values in zip(made, self._take(number, within, True), strict=True):
                array[rows] = values if isinstance(values, np.ndarray) else _values([values])
        return self._named(made, range(len(wanted)))

    def _rows(self, indices: Span | Sequence[int]) -> list[Element]:
        parts = self.places.split(indices)
        # What is taken from one of several pieces must not keep the whole piece in memory.
        may_share = len(parts) == 1 or self._layout.is_mapped
        taken = [self._take(number, within, may_share) for number, within, _ in parts]
        columns = [_values(pieces) for pieces in zip(*taken, strict=True)]
        records = [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]
        if len(parts) < 2:
            return records
        made: list[Element] = [None] * len(records)
        order = [row for _, _, rows in parts for row in rows.tolist()]
        for row, record in zip(order, records, strict=True):
            made[row] = record
        return made

    def _named(self, arrays: Sequence[NDArray[Any] | None], picks: Span) -> Columns:
        return Columns.of(dict(zip(self._names, arrays, strict=True)), picks)

    def _take(self, number: int, within: Indices, may_share: bool) -> list[Any]:
        piece = self._piece(number)
        return [
            pick(array, within, may_share=may_share) if view is None else view[within]
            for array, view in zip(piece.arrays, piece.views, strict=True)
        ]

    def _piece(self, number: int) -> _Piece:
        return self._pieces.get(number, lambda: self._load(number))

    def _load(self, number: int) -> tuple[_Piece, int]:
        part = self._layout.parts[number]
        arrays = self._files.read(self._layout, part)
        if any(len(array) != part.num_rows for array in arrays):
            raise CorruptFileError(
                f"There are {len(arrays[0]):,} rows where the file says that there are "
                f"{part.num_rows:,}. Write it anew.",
                path=self._files.files.refs[part.file].path,
            )
        views = [
            None if dense is None or null_rows(array) is not None else to_dense(array)
            for array, dense in zip(arrays, self._dense, strict=True)
        ]
        if self._layout.is_mapped:
            return _Piece(arrays, views), _OVERHEAD
        num_texts = 0
        for column, array in enumerate(arrays):
            if self._is_text[column]:  # as objects from the first: they are made only once
                views[column] = to_objects(array)
                num_texts += len(array)
        held = sum(array.nbytes for array in arrays) + num_texts * _TEXT_OVERHEAD
        kept = [
            None if is_text and view is not None else array
            for array, view, is_text in zip(arrays, views, self._is_text, strict=True)
        ]
        return _Piece(kept, views), held + _OVERHEAD


@final
class _Whole:
    """All rows of all columns in one array each, filled piece by piece.

    A batch is then one gather, whatever pieces its rows are in. The system gives an array memory
    where it is written.
    """

    def __init__(self, parts: Sequence[Part], dense: Sequence[Dense | None], *, limit: int) -> None:
        self._starts = np.cumsum([0, *(part.num_rows for part in parts)])
        count = int(self._starts[-1])
        self._arrays = [
            np.empty(count, object) if one is None else np.empty((count, *one.shape), one.dtype)
            for one in dense
        ]
        self._filled = Kept[None](0)
        self._num_parts = sum(part.num_rows > 0 for part in parts)
        self._room = limit
        self._is_given_up = False

    def read(
        self, indices: Indices, load: Callable[[int], tuple[_Piece, int]]
    ) -> list[NDArray[Any]] | None:
        """Give the arrays, filled at least where `indices` are.

        `None` where that cannot be: its texts take more memory than there may be, or are none.
        """
        if len(self._filled) < self._num_parts and not self._is_given_up:
            homes = np.unique(np.searchsorted(self._starts, indices, side="right") - 1)
            for home in homes.tolist():
                self._filled.get(home, partial(self._fill, home, load))
        return None if self._is_given_up else self._arrays

    def _fill(self, number: int, load: Callable[[int], tuple[_Piece, int]]) -> tuple[None, int]:
        piece, size = load(number)
        self._room -= size
        if self._room < 0 or any(view is None for view in piece.views):
            self._is_given_up = True
        else:
            rows = slice(self._starts[number], self._starts[number + 1])
            for array, view in zip(self._arrays, piece.views, strict=True):
                array[rows] = view
        return None, 0


def _values(pieces: Sequence[Any]) -> list[Any]:
    """Give the values of a column, taken from some pieces."""
    in_numpy = sum(isinstance(piece, np.ndarray) for piece in pieces)
    if in_numpy == len(pieces):
        joined: NDArray[Any] = np.concatenate(pieces)
        return list(joined)
    if not in_numpy:
        return to_values(join([array for piece in pieces for array in piece]))
    return [value for piece in pieces for value in _values([piece])]  # some have nulls
