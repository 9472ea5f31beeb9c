"""The remaining records of one or more streams after shards have read some, for new shards."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import numpy as np

from gristmill._base.indices import as_indices, exact_up_to, split_epochs
from gristmill._data.sampling.shard_lengths import ENDLESS, strided_length
from gristmill.options import ShardOptions
from gristmill.types import Indices


@final
@dataclass(frozen=True)
class Remaining:
    """The remaining elements of one stream, or of several that take turns, in a fixed order.

    Element k of stream s of n has the number s + n * k. The first streams can be longer.

    >>> remaining = Remaining((10,)).after([2, 1, 1])  # of 0 3 6 9, 1 4 7 and 2 5 8
    >>> remaining.numbers(np.arange(remaining.length)).tolist()
    [4, 5, 6, 7, 8, 9]
    >>> remaining.after([1, 3]).numbers(np.arange(2)).tolist()  # of 4 6 8 and 5 7 9
    [6, 8]
    """

    lengths: tuple[int, ...]
    taken: tuple["_Taken", ...] = field(default=(), repr=False)

    @cached_property
    def length(self) -> int:
        """Number of remaining elements."""
        total = ENDLESS if max(self.lengths) == ENDLESS else sum(self.lengths)
        for taken in self.taken:
            total = total if total == ENDLESS else taken.num_left(total)
        return total

    def num_positions(self, shard: ShardOptions) -> int:
        """Return the number of elements of a new shard."""
        return strided_length(self.length, shard)

    def numbers(self, indices: Indices) -> Indices:
        """Return the number of each remaining element."""
        num_before = sum(taken.first for taken in self.taken)
        indices = exact_up_to(indices, 2**62 // len(self.lengths) - num_before)
        for taken in reversed(self.taken):
            indices = taken.to_below(indices)
        return self._number(indices)

    def after(self, positions: Sequence[int], *, by_stream: bool = False) -> "Remaining":
        """Return what remains after shard s of n, which strides over this, has read `positions[s]`.

        With `by_stream`, after `positions[s]` elements of stream s were read.
        """
        count, took = len(positions), np.array(positions, dtype=np.int64)
        lowest, highest = int(took.min()), int(took.max())
        if by_stream:
            start = sum(min(length, lowest) for length in self.lengths)
            first = sum(min(length, highest) for length in self.lengths)
        else:
            end = count * highest if self.length == ENDLESS else self.length
            start, first = (min(count * some, end) for some in (lowest, highest))
        between = as_indices(range(start, first))
        rounds, owners = split_epochs(self._number(between) if by_stream else between, count)
        passed = between[rounds >= took[owners]]
        return Remaining(self.lengths, (*self.taken, _Taken(passed, first, count, by_stream)))

    def index_of(self, owner: int, position: int) -> int:
        """Return the index of the element that reader `owner` of the last run had at `position`."""
        taken = self.taken[-1]
        if not taken.by_stream:
            return taken.to_above(position * taken.count + owner)
        shorter = sum(min(length, position) for length in self.lengths)
        return taken.to_above(shorter + owner)

    def _number(self, indices: Indices) -> Indices:
        shortest, count = min(self.lengths), len(self.lengths)
        num_longer = sum(length > shortest for length in self.lengths)
        if not num_longer:
            return indices
        turns, streams = split_epochs(indices - count * shortest, num_longer)
        return np.where(turns < 0, indices, streams + count * (shortest + turns))


@final
@dataclass(frozen=True)
class _Taken:
    """What one run left: elements before `first` that only some shards passed, and all after."""

    passed: Indices
    first: int
    count: int
    """Number of shards that read, by stride or each its own stream."""
    by_stream: bool

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Taken)
            and self.first == other.first
            and np.array_equal(self.passed, other.passed)
        )

    def __hash__(self) -> int:
        return hash((self.first, len(self.passed)))

    def num_left(self, total: int) -> int:
        return total - self.first + len(self.passed)

    def to_below(self, indices: Indices) -> Indices:
        passed = len(self.passed)
        if not passed:
            return indices + self.first
        later = indices - passed + self.first
        earlier = self.passed[as_indices(np.minimum(indices, passed - 1))]
        return np.where(indices < passed, earlier, later)

    def to_above(self, index: int) -> int:
        if index >= self.first:
            return index - self.first + len(self.passed)
        return int(np.searchsorted(self.passed, index))
