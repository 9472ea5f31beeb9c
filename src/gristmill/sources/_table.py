"""Rows of tables that are stored in pieces, each of which is read as a whole.

TableSource ─ Table ─┬─ TableFiles    where pieces come from: Parquet, Arrow
                     └─ Kept | Whole  what was read: pieces, or one array for each column
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

from gristmill._columns import Columns
from gristmill.errors import CorruptFileError
from gristmill.sources._arrow import Dense, dense_of, join, null_rows, pick, to_dense, to_values
from gristmill.sources._kept import Kept
from gristmill.sources._parts import Layout, Part, TableFiles
from gristmill.sources._places import Places
from gristmill.types import Element, Indices, Span

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
        dense = [one for one in self._dense if one is not None]
        self.is_columnar = 0 < len(dense) == len(self._names) and not layout.has_nulls
        num_bytes = len(self.places) * sum(one.num_bytes for one in dense)
        fits = len(layout.parts) > 1 and num_bytes <= cache_bytes
        self._whole = _Whole(layout.parts, dense) if fits and self.is_columnar else None
        self._pieces = Kept[_Piece](cache_bytes)

    def read_columns(self, indices: Span | Sequence[int]) -> Columns:
        """Give rows as columns: picks of all rows, or of the one piece they are in, or a copy."""
        wanted = _as_array(indices)
        if self._whole is not None:
            for bound in (wanted.min(), wanted.max()) if len(wanted) else ():
                self.places.check(bound)
            arrays = self._whole.read(wanted, self._load)
            return self._named(arrays, indices if isinstance(indices, range) else wanted)
        parts = self.places.split(wanted)
        if len(parts) == 1:
            number, within, _ = parts[0]
            start = int(within[0])
            step = indices.step if isinstance(indices, range) else 0
            picks = range(start, start + step * len(within), step) if step else within
            return self._named(self._piece(number).views, picks)
        made = [np.empty((len(wanted), *one.shape), one.dtype) for one in self._dense if one]
        for number, within, rows in parts:
            for array, view in zip(made, self._piece(number).views, strict=True):
                assert view is not None
                array[rows] = view[within]
        return self._named(made, range(len(wanted)))

    def rows(self, indices: Span | Sequence[int]) -> list[Element]:
        """Give rows as dicts."""
        if self.is_columnar:
            return self.read_columns(indices).rows()
        try:
            return self._rows(_as_array(indices))
        except UnicodeDecodeError as error:
            for index in indices if len(indices) > 1 else ():
                self.rows([index])  # finds the file
            part = self._layout.parts[self.places.locate(indices[0])[0]]
            raise CorruptFileError(
                f"A text is not UTF-8: {error.reason}. Write the file anew, with binary values "
                "where they are no text.",
                path=self._files.files.refs[part.file].path,
            ) from None

    def _rows(self, indices: Indices) -> list[Element]:
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
        held = 0 if self._layout.is_mapped else sum(array.nbytes for array in arrays)
        return _Piece(arrays, views), held + _OVERHEAD


@final
class _Whole:
    """All rows of all columns in one array each, filled piece by piece.

    A batch is then one gather, whatever pieces its rows are in. The system gives an array memory
    where it is written.
    """

    def __init__(self, parts: Sequence[Part], dense: Sequence[Dense]) -> None:
        self._starts = np.cumsum([0, *(part.num_rows for part in parts)])
        self._arrays = [np.empty((self._starts[-1], *one.shape), one.dtype) for one in dense]
        self._filled = Kept[None](0)
        self._num_parts = sum(part.num_rows > 0 for part in parts)

    def read(
        self, indices: Indices, load: Callable[[int], tuple[_Piece, int]]
    ) -> list[NDArray[Any]]:
        """Give the arrays, filled at least where `indices` are."""
        if len(self._filled) < self._num_parts:
            homes = np.unique(np.searchsorted(self._starts, indices, side="right") - 1)
            for home in homes.tolist():
                self._filled.get(home, partial(self._fill, home, load))
        return self._arrays

    def _fill(self, number: int, load: Callable[[int], tuple[_Piece, int]]) -> tuple[None, int]:
        rows = slice(self._starts[number], self._starts[number + 1])
        for array, view in zip(self._arrays, load(number)[0].views, strict=True):
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


def _as_array(indices: Span | Sequence[int]) -> Indices:
    if isinstance(indices, range):  # which NumPy would go through one by one
        return np.arange(indices.start, indices.stop, indices.step, dtype=np.int64)
    return np.asarray(indices, dtype=np.int64)
