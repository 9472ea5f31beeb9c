"""Nodes that go on with what other shards have left."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from gristmill._data.sampling.remaining import Remaining
from gristmill._plan.nodes.combine import ChooseNode
from gristmill._plan.nodes.rearrange import RearrangeNode
from gristmill._plan.nodes.stream import StatefulNode
from gristmill.options import ShardOptions
from gristmill.types import Indices


@final
@dataclass(frozen=True, kw_only=True)
class RemainingNode(RearrangeNode):
    """The elements of the parent that shards which strode over it have left: a shard of them."""

    remaining: Remaining
    shard: ShardOptions

    @property
    def label(self) -> str:
        return f"Rest({self.shard.shard_index} of {self.shard.shard_count})"

    def length(self) -> int:
        return self.remaining.num_positions(self.shard)

    def to_parent(self, indices: Indices) -> Indices:
        return self.remaining.numbers(indices * self.shard.shard_count + self.shard.shard_index)


@final
@dataclass(frozen=True, kw_only=True)
class ReshardedNode(ChooseNode):
    """What is left of the parents, each of which was a shard's own, dealt by turns: a shard of it.

    For where an element's place in its shard matters: a shard that shuffles by itself, say.
    """

    remaining: Remaining
    shard: ShardOptions

    @property
    def label(self) -> str:
        return f"Rest({self.shard.shard_index} of {self.shard.shard_count})"

    def length(self) -> int:
        return self.remaining.num_positions(self.shard)

    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        numbers = self.remaining.numbers(indices * self.shard.shard_count + self.shard.shard_index)
        within, owners = np.divmod(numbers, len(self.parents))
        return owners, within


@final
@dataclass(frozen=True, kw_only=True)
class ChainNode(StatefulNode):
    """One stream after the other, each from a cursor of its own on; `None` is its beginning."""

    starts: tuple[Any, ...]

    @property
    def label(self) -> str:
        return f"Chain({len(self.parents)} streams)"
