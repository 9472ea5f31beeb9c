"""Nodes that change only which element stands where: integer maths, a block of indices at a time.

A dataset has no end: past its length come later epochs. Index i is element i mod length of epoch
i div length, and each node here keeps the epoch while it moves the element.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from gristmill._data.sampling.shard_lengths import ENDLESS
from gristmill._data.sampling.shuffle import shuffled
from gristmill._plan.nodes.base import Node
from gristmill.types import Indices

_SEEDS = 2**32


@dataclass(frozen=True, kw_only=True)
class RearrangeNode(Node):
    """The elements of the parent, elsewhere."""

    parent: Node

    def length(self) -> int:
        return self.parent.length()

    @property
    def is_dense(self) -> bool:
        return self.parent.is_dense

    @abstractmethod
    def to_parent(self, indices: Indices) -> Indices:
        """Give the parent's index of each element."""

    def run_in_parent(self, run: range) -> range | None:
        """Give the parent's indices of elements that follow each other, if those do, too."""
        return None


@final
@dataclass(frozen=True, kw_only=True)
class ShuffleNode(RearrangeNode):
    """All of an epoch in another order, in each epoch in a different one."""

    seed: int

    @property
    def label(self) -> str:
        return f"Shuffle(seed={self.seed})"

    def to_parent(self, indices: Indices) -> Indices:
        length = self.parent.length()
        epochs, places = np.divmod(indices, length)
        moved = _by_group(
            epochs,
            places,
            lambda epoch, some: shuffled(
                some, num_records=length, seed=(self.seed + epoch) % _SEEDS
            ),
        )
        return moved + epochs * length


@final
@dataclass(frozen=True, kw_only=True)
class WindowShuffleNode(RearrangeNode):
    """Each `window` elements in another order."""

    window: int
    seed: int

    @property
    def label(self) -> str:
        return f"WindowShuffle(window_size={self.window}, seed={self.seed})"

    def to_parent(self, indices: Indices) -> Indices:
        windows, places = np.divmod(indices, self.window)
        moved = _by_group(
            windows,
            places,
            lambda number, some: shuffled(
                some, num_records=self.window, seed=(self.seed + number) % _SEEDS
            ),
        )
        return moved + windows * self.window


@final
@dataclass(frozen=True, kw_only=True)
class SliceNode(RearrangeNode):
    """Every `step`th element of an epoch, from `start` up to `stop`."""

    start: int
    stop: int
    step: int

    @property
    def label(self) -> str:
        return f"Slice[{self.start}:{self.stop}:{self.step}]"

    def length(self) -> int:
        return len(range(self.start, self.stop, self.step))

    def to_parent(self, indices: Indices) -> Indices:
        epochs, places = np.divmod(indices, self.length())
        if not epochs.any():  # the parent may be endless, and times 0 is still 0
            return self.start + places * self.step
        return self.start + places * self.step + epochs * self.parent.length()

    def run_in_parent(self, run: range) -> range | None:
        if self.step == 1 and 0 <= run.start <= run.stop <= self.length():
            return range(self.start + run.start, self.start + run.stop)
        return None


@final
@dataclass(frozen=True, kw_only=True)
class PickNode(RearrangeNode):
    """The elements at the indices that the user lists."""

    picks: tuple[int, ...]

    @property
    def label(self) -> str:
        return f"Pick({len(self.picks)} of {self.parent.length()})"

    def length(self) -> int:
        return len(self.picks)

    @cached_property
    def _picks(self) -> Indices:
        return np.array(self.picks, dtype=np.int64)

    def to_parent(self, indices: Indices) -> Indices:
        epochs, places = np.divmod(indices, len(self.picks))
        return self._picks[places] + epochs * self.parent.length()


@final
@dataclass(frozen=True, kw_only=True)
class RepeatNode(RearrangeNode):
    """Several epochs as one, or epochs without end; all like the first, if not `reseeded`."""

    num_epochs: int | None
    reseeds: bool = True

    @property
    def label(self) -> str:
        told = "" if self.num_epochs is None else str(self.num_epochs)
        return f"Repeat({told}{'' if self.reseeds else ', reseed_each_epoch=False'})"

    def length(self) -> int:
        one = self.parent.length()
        if self.num_epochs is None:
            return ENDLESS if one else 0
        return min(one * self.num_epochs, ENDLESS)

    def to_parent(self, indices: Indices) -> Indices:
        return indices if self.reseeds else indices % self.parent.length()

    def run_in_parent(self, run: range) -> range | None:
        is_within = 0 <= run.start <= run.stop <= self.parent.length()
        return run if self.reseeds or is_within else None


def _by_group(groups: Indices, places: Indices, move: Callable[[int, Indices], Indices]) -> Indices:
    """Call `move` with each group's number and its places: of one block, mostly one group."""
    if not len(groups):
        return places
    first = int(groups[0])
    if first == groups[-1] and (groups == first).all():
        return move(first, places)
    moved = np.empty_like(places)
    for number in np.unique(groups):
        chosen = groups == number
        moved[chosen] = move(int(number), places[chosen])
    return moved
