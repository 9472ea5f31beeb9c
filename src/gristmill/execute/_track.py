"""Where the elements of a block came from, and where to go on after each.

A *cursor* is a place between two elements of the stream: the position of a sampled record and, for
each flat map of the plan, how many pieces of it were already given. Cursors grow along the stream
(compared as tuples) and do not depend on how it was cut into blocks. Reading on from the cursor
after an element gives the next one.

A stage that keeps something from one element to the next (a window, open bins) is at another kind
of place. It numbers what it gives, `states` tells its state before each number, and in the cursor
that stands in place of the position. Within the engine, cursors are *local*: numbers only.

As long as elements are evenly spaced records, or batches of them, a track is a few integers
(`DenseTrack`). After a filter or a flat map it has a row for each element (`SparseTrack`).
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from gristmill.types import Indices, Span

Cursor: TypeAlias = tuple[Any, ...]
"""A position and numbers of pieces; or the state of a stage and numbers of pieces."""

States: TypeAlias = Callable[[int], Any]
"""What the state of a stage is when the element of a number comes next."""


@final
class DenseTrack:
    """Element i is made of the `size` records from `first + i * size` on; `end` cuts the last."""

    __slots__ = ("_count", "_end", "_first", "_num_flat_maps", "_size", "_states")

    def __init__(
        self,
        first: int,
        count: int,
        *,
        size: int,
        end: int,
        num_flat_maps: int,
        states: States | None = None,
    ) -> None:
        self._first = first
        self._count = count
        self._size = size
        self._end = end
        self._num_flat_maps = num_flat_maps
        self._states = states

    @staticmethod
    def of_records(
        positions: range, *, num_flat_maps: int, states: States | None = None
    ) -> "DenseTrack":
        """Give the track of sampled records, or of numbered elements of a stage."""
        return DenseTrack(
            positions.start,
            len(positions),
            size=1,
            end=positions.stop,
            num_flat_maps=num_flat_maps,
            states=states,
        )

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, part: slice) -> "DenseTrack":
        start, stop, _ = part.indices(self._count)
        count = max(0, stop - start)
        return self._like(self._first + start * self._size, count, self._size)

    def batched(self, size: int) -> "DenseTrack":
        """Give the track of elements that each unite `size` of these; the last what is left."""
        return self._like(self._first, -(-self._count // size), self._size * size)

    def after(self, row: int) -> Cursor:
        """Give the cursor after an element."""
        end = self._end_of(row)
        place = end if self._states is None else self._states(end)
        return (place,) + (0,) * self._num_flat_maps

    def position(self, row: int) -> int:
        """Give the position of the record an element is made of: of a batch, the last."""
        return self._end_of(row) - 1

    def num_until(self, cursor: Cursor) -> int:
        """Count the elements that lie before a local cursor."""
        if cursor[0] >= self._end:
            return self._count
        return max(0, (cursor[0] - self._first) // self._size)

    def sparse(self) -> "SparseTrack":
        """Give the same with a row for each element."""
        starts = np.zeros((self._count, 1 + self._num_flat_maps), dtype=np.int64)
        starts[:, 0] = self._first + np.arange(self._count) * self._size
        ends = starts.copy()
        ends[:, 0] = np.minimum(starts[:, 0] + self._size, self._end)
        origins = starts.copy()
        origins[:, 0] = ends[:, 0] - 1
        return SparseTrack(origins, starts, ends, self._states)

    def _end_of(self, row: int) -> int:
        return min(self._first + (row + 1) * self._size, self._end)

    def _like(self, first: int, count: int, size: int) -> "DenseTrack":
        end = min(first + count * size, self._end)
        return DenseTrack(
            first,
            count,
            size=size,
            end=end,
            num_flat_maps=self._num_flat_maps,
            states=self._states,
        )


@final
@dataclass(frozen=True, slots=True)
class SparseTrack:
    """Cursors of the elements, one row each: position first, then flat maps bottom up.

    `starts` is where reading on would give the element first, `ends` the same for the one after
    it. `origins` tells the record, or piece of one, that the element is made of: of a batch, the
    last; the random generator hangs on it.
    """

    origins: Indices
    starts: Indices
    ends: Indices
    states: States | None = None

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, part: slice | Indices) -> "SparseTrack":
        return SparseTrack(self.origins[part], self.starts[part], self.ends[part], self.states)

    def batched(self, size: int) -> "SparseTrack":
        """Give the track of elements that each unite `size` of these; the last what is left."""
        firsts = np.arange(0, len(self), size)
        lasts = np.minimum(firsts + size, len(self)) - 1
        return SparseTrack(self.origins[lasts], self.starts[firsts], self.ends[lasts], self.states)

    def after(self, row: int) -> Cursor:
        """Give the cursor after an element."""
        place, *pieces = self.ends[row].tolist()
        return (place if self.states is None else self.states(place), *pieces)

    def position(self, row: int) -> int:
        """Give the position of the record an element is made of: of a batch, the last."""
        return int(self.origins[row, 0])

    def num_until(self, cursor: Cursor) -> int:
        """Count the elements that lie before a local cursor."""
        return sum(tuple(end) <= cursor for end in self.ends.tolist())

    def lies_before(self, cursors: Sequence[Cursor]) -> NDArray[np.bool_]:
        """Tell which elements are of the record of one of the cursors, and lie before it."""
        lies = np.zeros(len(self), dtype=bool)
        for cursor in cursors:
            for row in np.flatnonzero(self.starts[:, 0] == cursor[0]).tolist():
                lies[row] = tuple(self.ends[row].tolist()) <= tuple(cursor)
        return lies

    def sparse(self) -> "SparseTrack":
        """Give itself."""
        return self

    def split(self, counts: Indices, *, level: int) -> "SparseTrack":
        """Give the track of the pieces when flat map `level` makes `counts` of each element."""
        parents = np.repeat(np.arange(len(counts)), counts)
        pieces = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts, origins = self.starts[parents], self.origins[parents]
        ends = starts.copy()
        starts[:, level] = pieces
        origins[:, level] = ends[:, level] = pieces + 1
        is_last = pieces == counts[parents] - 1
        ends[is_last] = self.ends[parents[is_last]]
        return SparseTrack(origins, starts, ends, self.states)


Track: TypeAlias = DenseTrack | SparseTrack


def index_track(indices: Span) -> Track:
    """Give the track of elements that were asked for by index, as a run or in no order."""
    if isinstance(indices, range):
        return DenseTrack.of_records(indices, num_flat_maps=0)
    column = indices.reshape(-1, 1)
    return SparseTrack(column, column, column)


def concatenate_tracks(tracks: list[Track]) -> SparseTrack:
    """Give one track for blocks that follow each other."""
    rows = [track.sparse() for track in tracks]
    return SparseTrack(
        np.concatenate([track.origins for track in rows]),
        np.concatenate([track.starts for track in rows]),
        np.concatenate([track.ends for track in rows]),
        _joined_states(rows),
    )


def _joined_states(tracks: list[SparseTrack]) -> States | None:
    parts: list[tuple[int, States]] = []
    for track in tracks:
        first = int(track.starts[0, 0])
        if isinstance(track.states, _JoinedStates):
            parts += track.states.parts_from(first)
        elif track.states is not None:
            parts.append((first, track.states))
    return _JoinedStates(parts) if parts else None


@final
class _JoinedStates:
    """The states of several tracks that follow each other."""

    def __init__(self, parts: list[tuple[int, States]]) -> None:
        self._firsts = [first for first, _ in parts]
        self._states = [states for _, states in parts]

    def __call__(self, number: int) -> Any:
        return self._states[self._place(number)](number)

    def parts_from(self, number: int) -> list[tuple[int, States]]:
        """Give the parts with that number and later ones: what lies before is let go."""
        place = self._place(number)
        return list(zip(self._firsts[place:], self._states[place:], strict=True))

    def _place(self, number: int) -> int:
        return max(0, bisect_right(self._firsts, number) - 1)
