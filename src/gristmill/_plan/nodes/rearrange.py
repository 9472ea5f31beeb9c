"""Nodes of a dataset that only change which element is at which index.

They map a block of indices at a time with integer arithmetic. Indices past the length of a dataset
belong to later epochs: index i is element `i % length` of epoch `i // length`. The nodes here keep
the epoch of an element and change its index within the epoch.
"""

from abc import abstractmethod
from functools import cached_property
from typing import final

import numpy as np

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._base.indices import as_indices, join_epochs, scale, split_epochs
from gristmill._data.sampling.remaining import Remaining
from gristmill._data.sampling.shuffle import shuffled
from gristmill._data.sampling.splits import SplitPart
from gristmill._data.sampling.weights import WeightedDraws
from gristmill._plan.nodes.base import ENDLESS, EpochChange, UnaryNode
from gristmill.options import ShardOptions
from gristmill.types import Indices

_NUM_SEEDS = 2**32


@frozen_dataclass
class RearrangeNode(UnaryNode):
    """The elements of the parent at other indices."""

    @property
    def is_order(self) -> bool:
        return True

    @property
    def keeps_absent(self) -> bool:
        return True

    @abstractmethod
    def to_parent(self, indices: Indices) -> Indices:
        """Return the index in the parent of each element."""

    def run_in_parent(self, run: range) -> range | None:
        """Return the parent's indices of consecutive elements, if they are consecutive, too."""
        return None


@final
@frozen_dataclass
class ShuffleNode(RearrangeNode):
    """The elements of each epoch in random order, in each epoch a different one."""

    seed: int

    @property
    def label(self) -> str:
        return f"Shuffle(seed={self.seed})"

    def num_read(self, index: int) -> int:
        return index

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.ORDER

    def to_parent(self, indices: Indices) -> Indices:
        length = self.parent.length()
        epochs, offsets = split_epochs(indices, length)
        moved = _shuffled_in_groups(epochs, offsets, group_size=length, seed=self.seed)
        return join_epochs(epochs, moved, length, bound=length)


@final
@frozen_dataclass
class WindowShuffleNode(RearrangeNode):
    """Every `window` consecutive elements in random order."""

    window: int
    seed: int

    @property
    def label(self) -> str:
        return f"WindowShuffle(window_size={self.window}, seed={self.seed})"

    def num_read(self, index: int) -> int:
        return index

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.ORDER

    def to_parent(self, indices: Indices) -> Indices:
        windows, offsets = split_epochs(indices, self.window)
        moved = _shuffled_in_groups(windows, offsets, group_size=self.window, seed=self.seed)
        return join_epochs(windows, moved, self.window, bound=self.window)


@final
@frozen_dataclass
class SliceNode(RearrangeNode):
    """Every `step`-th element of an epoch, from `start` up to `stop`."""

    start: int
    stop: int
    step: int

    @property
    def label(self) -> str:
        return f"Slice[{self.start}:{self.stop}:{self.step}]"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    @property
    def may_be_shard(self) -> bool:
        return True

    @property
    def is_shard(self) -> bool:
        """Whether it is one of several shards of the parent: `ds[shard::num_shards]`."""
        return 0 <= self.start < self.step and self.stop == self.parent.length()

    def length(self) -> int:
        return len(range(self.start, self.stop, self.step))

    @cached_property
    def _stride(self) -> int:
        # An even larger step selects one element, whose offset is 0.
        return min(max(self.step, -ENDLESS), ENDLESS)

    def num_read(self, index: int) -> int:
        return int(self.to_parent(as_indices([index]))[0])

    def to_parent(self, indices: Indices) -> Indices:
        epochs, offsets = split_epochs(indices, self.length())
        epoch_length = self.parent.length()
        sliced = self.start + offsets * self._stride
        return join_epochs(epochs, sliced, epoch_length, bound=epoch_length)

    def run_in_parent(self, run: range) -> range | None:
        length = self.length()
        epoch, offset = divmod(run.start, length)
        if self.step != 1 or offset + len(run) > length:
            return None
        start = self.start + offset + epoch * self.parent.length()
        return range(start, start + len(run))


@final
@frozen_dataclass
class PickNode(RearrangeNode):
    """The elements at the indices that the user lists."""

    picks: tuple[int, ...]

    @property
    def label(self) -> str:
        return f"Pick({len(self.picks)} of {self.parent.length()})"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    @property
    def may_be_shard(self) -> bool:
        return True

    def length(self) -> int:
        return len(self.picks)

    @cached_property
    def _picks(self) -> Indices:
        return as_indices(self.picks)

    @cached_property
    def _bound(self) -> int:
        return max(self.parent.length(), 1 + max(map(abs, self.picks)))

    def to_parent(self, indices: Indices) -> Indices:
        epochs, offsets = split_epochs(indices, len(self.picks))
        picks = self._picks[offsets]
        return join_epochs(epochs, picks, self.parent.length(), bound=self._bound)


@final
@frozen_dataclass
class SplitNode(RearrangeNode):
    """One part of a split: in every epoch the same elements, disjoint from the other parts."""

    part: SplitPart

    @property
    def label(self) -> str:
        return f"Split({self.part})"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    def length(self) -> int:
        return len(self.part)

    def to_parent(self, indices: Indices) -> Indices:
        epochs, offsets = split_epochs(indices, len(self.part))
        length = self.parent.length()
        return join_epochs(epochs, self.part.keys(offsets), length, bound=length)


@final
@frozen_dataclass
class WeightedNode(RearrangeNode):
    """Elements of each epoch that are drawn at random, in proportion to weights."""

    draws: WeightedDraws

    @property
    def label(self) -> str:
        return f"Sample({self.draws})"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.ORDER

    def length(self) -> int:
        return self.draws.num_samples

    def to_parent(self, indices: Indices) -> Indices:
        epochs, offsets = split_epochs(indices, self.draws.num_samples)
        length = self.parent.length()
        return join_epochs(epochs, self.draws.keys(epochs, offsets), length, bound=length)


@final
@frozen_dataclass
class RepeatNode(RearrangeNode):
    """Several epochs, or an endless number of them. If not `reseeds`, all equal the first."""

    num_epochs: int | None
    reseeds: bool = True

    @property
    def label(self) -> str:
        count = "" if self.num_epochs is None else str(self.num_epochs)
        return f"Repeat({count}{'' if self.reseeds else ', reseed_each_epoch=False'})"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE if self.reseeds else EpochChange.NONE_BELOW

    def num_read(self, index: int) -> int:
        return index

    def length(self) -> int:
        epoch = self.parent.length()
        if self.num_epochs is None:
            return ENDLESS if epoch else 0
        return min(epoch * self.num_epochs, ENDLESS)

    def to_parent(self, indices: Indices) -> Indices:
        return indices if self.reseeds else as_indices(indices % self.parent.length())

    def run_in_parent(self, run: range) -> range | None:
        is_within = 0 <= run.start <= run.stop <= self.parent.length()
        return run if self.reseeds or is_within else None


@final
@frozen_dataclass
class RemainingNode(RearrangeNode):
    """A shard of the elements of the parent that the shards of an earlier run have not read."""

    remaining: Remaining
    shard: ShardOptions

    @property
    def label(self) -> str:
        return f"Remaining({self.shard.shard_index} of {self.shard.shard_count})"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE  # nothing reads a second epoch of what remains

    @property
    def may_be_shard(self) -> bool:
        return True

    def length(self) -> int:
        return self.remaining.num_positions(self.shard)

    def to_parent(self, indices: Indices) -> Indices:
        shard = self.shard
        return self.remaining.numbers(scale(indices, shard.shard_count, shard.shard_index))


def _shuffled_in_groups(
    groups: Indices, offsets: Indices, *, group_size: int, seed: int
) -> Indices:
    """Return the shuffled offset of each element within its group, which has a seed of its own."""

    def shuffle_group(group: int, chosen: Indices) -> Indices:
        return shuffled(chosen, num_records=group_size, seed=(seed + group) % _NUM_SEEDS)

    if not len(groups):
        return offsets
    first = int(groups[0])
    if first == groups[-1] and (groups == first).all():  # most blocks lie within one group
        return shuffle_group(first, offsets)
    moved = np.empty_like(offsets)
    for group in np.unique(groups).tolist():
        chosen = groups == group
        moved[chosen] = shuffle_group(group, offsets[chosen])
    return moved
