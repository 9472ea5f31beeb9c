"""Lineage: the position each element of a block came from, and the cursor after it.

A *cursor* is a point between two elements of the stream: the position of a record and, for each
flat map of the plan, the number of outputs already produced from its current input. Cursors
increase along the stream (compared as tuples) and do not depend on how it is split into blocks.
Reading from the cursor after an element yields the next element.

A stateful stage (a shuffle window, open packing bins) has a state in place of a position. It
numbers its elements, and `states` maps each number to the state before that element. Within the
engine, cursors are *local*: integers only.

While elements are evenly spaced records, or batches of them, their lineage is a few integers
(`DenseLineage`). After a filter or a flat map it has one row per element (`SparseLineage`).
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.indices import as_indices
from gristmill.types import Cursor, Indices, Span

StateBefore: TypeAlias = Callable[[int], object]
"""Maps the number of an element of a stateful stage to the state before that element."""


@final
class DenseLineage:
    """Element i is made of the `size` records from `first + i * size` on, but none past `end`."""

    __slots__ = ("_count", "_end", "_first", "_num_flat_maps", "_size", "_states")

    def __init__(
        self,
        first: int,
        count: int,
        *,
        size: int,
        end: int,
        num_flat_maps: int,
        states: StateBefore | None = None,
    ) -> None:
        self._first = first
        self._count = count
        self._size = size
        self._end = end
        self._num_flat_maps = num_flat_maps
        self._states = states

    @staticmethod
    def of_records(
        positions: range, *, num_flat_maps: int, states: StateBefore | None = None
    ) -> "DenseLineage":
        """Return the lineage of records at positions, or of numbered elements of a stage."""
        return DenseLineage(
            positions.start,
            len(positions),
            size=1,
            end=positions.stop,
            num_flat_maps=num_flat_maps,
            states=states,
        )

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: slice) -> "DenseLineage":
        start, stop, _ = rows.indices(self._count)
        count = max(0, stop - start)
        return self._like(self._first + start * self._size, count, self._size)

    def batched(self, ends: Sequence[int]) -> "DenseLineage":
        """Return the lineage of batches of these elements; all but the last have one size.

        `ends` are the rows after the last element of each batch.
        """
        size = ends[0] if ends else 1
        return self._like(self._first, len(ends), self._size * size)

    def after(self, row: int) -> Cursor:
        """Return the cursor after an element."""
        end = self._end_of(row)
        first = end if self._states is None else self._states(end)
        return (first,) + (0,) * self._num_flat_maps

    def before(self, row: int) -> Cursor:
        """Return the local cursor before an element."""
        return (self._first + row * self._size,) + (0,) * self._num_flat_maps

    def position(self, row: int) -> int:
        """Return the position of the record of an element; of its last record for a batch."""
        return self._end_of(row) - 1

    def positions(self) -> Indices:
        """Return the position of each element, as `position` does."""
        return self._boundaries()[1:] - 1

    def num_until(self, cursor: Cursor) -> int:
        """Return the number of elements before a local cursor."""
        if cursor[0] >= self._end:
            return self._count
        return max(0, (cursor[0] - self._first) // self._size)

    def sparse(self) -> "SparseLineage":
        """Return the same lineage with one row per element."""
        boundaries = self._boundaries()
        starts = np.zeros((self._count, 1 + self._num_flat_maps), dtype=boundaries.dtype)
        starts[:, 0] = boundaries[:-1]
        ends = starts.copy()
        ends[:, 0] = boundaries[1:]
        origins = starts.copy()
        origins[:, 0] = ends[:, 0] - 1
        return SparseLineage(origins, starts, ends, self._states)

    def _boundaries(self) -> Indices:
        """Return the position before each element, and the one after the last."""
        stop = self._first + (self._count + 1) * self._size
        return np.minimum(as_indices(range(self._first, stop, self._size)), self._end)

    def _end_of(self, row: int) -> int:
        return min(self._first + (row + 1) * self._size, self._end)

    def _like(self, first: int, count: int, size: int) -> "DenseLineage":
        end = min(first + count * size, self._end)
        return DenseLineage(
            first,
            count,
            size=size,
            end=end,
            num_flat_maps=self._num_flat_maps,
            states=self._states,
        )


@final
@dataclass(slots=True, eq=False)
class SparseLineage:
    """One row of numbers per element: the position first, then one per flat map, bottom up.

    `starts` are the cursors before the elements, `ends` the cursors after them. `origins` name the
    record, or the output of a flat map, that an element is made of (the last one for a batch): the
    random generator of an element depends on its origin.
    """

    origins: Indices
    starts: Indices
    ends: Indices
    states: StateBefore | None = None

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, rows: slice | Indices) -> "SparseLineage":
        return SparseLineage(self.origins[rows], self.starts[rows], self.ends[rows], self.states)

    def batched(self, ends: Sequence[int]) -> "SparseLineage":
        """Return the lineage of batches of these elements.

        `ends` are the rows after the last element of each batch.
        """
        stops = np.array(ends, dtype=np.int64)
        firsts, lasts = stops - np.diff(stops, prepend=0), stops - 1
        return SparseLineage(
            self.origins[lasts], self.starts[firsts], self.ends[lasts], self.states
        )

    def after(self, row: int) -> Cursor:
        """Return the cursor after an element."""
        first, *outputs = self.ends[row].tolist()
        return (first if self.states is None else self.states(first), *outputs)

    def before(self, row: int) -> Cursor:
        """Return the local cursor before an element."""
        return tuple(self.starts[row].tolist())

    def position(self, row: int) -> int:
        """Return the position of the record of an element; of its last record for a batch."""
        return int(self.origins[row, 0])

    def positions(self) -> Indices:
        """Return the position of each element, as `position` does."""
        return self.origins[:, 0]

    def num_until(self, cursor: Cursor) -> int:
        """Return the number of elements before a local cursor."""
        return sum(tuple(end) <= cursor for end in self.ends.tolist())

    def is_before(self, cursors: Sequence[Cursor]) -> NDArray[np.bool_]:
        """Return for each element whether one of the cursors is after it in the same record."""
        is_before = np.zeros(len(self), dtype=bool)
        for cursor in cursors:
            for row in np.flatnonzero(self.starts[:, 0] == cursor[0]).tolist():
                is_before[row] = tuple(self.ends[row].tolist()) <= tuple(cursor)
        return is_before

    def sparse(self) -> "SparseLineage":
        """Return this lineage itself."""
        return self

    def split(self, counts: Indices, *, level: int) -> "SparseLineage":
        """Return the lineage of the outputs of a flat map: `counts[i]` of element i.

        Args:
            counts: The number of outputs of each element.
            level: The number of the flat map in the plan, bottom up from 1.
        """
        inputs = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(len(inputs)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts, origins = self.starts[inputs], self.origins[inputs]
        ends = starts.copy()
        starts[:, level] = numbers
        origins[:, level] = ends[:, level] = numbers + 1
        is_last = numbers == counts[inputs] - 1
        ends[is_last] = self.ends[inputs[is_last]]
        return SparseLineage(origins, starts, ends, self.states)


Lineage: TypeAlias = DenseLineage | SparseLineage


def lineage_of(span: Span, *, num_flat_maps: int = 0) -> Lineage:
    """Return the lineage of one element at each position of a stream or index of a dataset."""
    if isinstance(span, range):
        if span.step == 1:
            return DenseLineage.of_records(span, num_flat_maps=num_flat_maps)
        span = as_indices(span)
    starts, ends = span.reshape(-1, 1), (span + 1).reshape(-1, 1)
    if num_flat_maps:
        padding = (0, 0), (0, num_flat_maps)
        starts, ends = np.pad(starts, padding), np.pad(ends, padding)
    return SparseLineage(starts, starts, ends)


def concatenate_lineages(lineages: list[Lineage]) -> SparseLineage:
    """Return one lineage for blocks that follow each other."""
    rows = [lineage.sparse() for lineage in lineages]
    return SparseLineage(
        np.concatenate([lineage.origins for lineage in rows]),
        np.concatenate([lineage.starts for lineage in rows]),
        np.concatenate([lineage.ends for lineage in rows]),
        _concatenate_states(rows),
    )


def _concatenate_states(lineages: list[SparseLineage]) -> StateBefore | None:
    segments: list[tuple[int, StateBefore]] = []
    for lineage in lineages:
        first = int(lineage.starts[0, 0])
        if isinstance(lineage.states, _ConcatenatedStates):
            segments += lineage.states.segments_from(first)
        elif lineage.states is not None:
            segments.append((first, lineage.states))
    return _ConcatenatedStates(segments) if segments else None


@final
class _ConcatenatedStates:
    """The states of several lineages that follow each other, by the first number of each."""

    def __init__(self, segments: list[tuple[int, StateBefore]]) -> None:
        self._firsts = [first for first, _ in segments]
        self._states = [states for _, states in segments]

    def __call__(self, number: int) -> object:
        return self._states[self._segment_of(number)](number)

    def segments_from(self, number: int) -> list[tuple[int, StateBefore]]:
        """Return the segment of `number` and later ones; earlier ones can be freed."""
        segment = self._segment_of(number)
        return list(zip(self._firsts[segment:], self._states[segment:], strict=True))

    def _segment_of(self, number: int) -> int:
        return max(0, bisect_right(self._firsts, number) - 1)
