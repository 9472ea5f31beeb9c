"""Stream nodes over one other that give its elements in another order, number or size."""

from dataclasses import dataclass
from typing import final

from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.stream import StatefulNode


@dataclass(frozen=True, kw_only=True)
class StreamStepNode(StatefulNode):
    """A stream over one other."""

    @property
    def parent(self) -> Node:
        """The one other."""
        return self.parents[0]


@final
@dataclass(frozen=True, kw_only=True)
class WindowShuffleStreamNode(StreamStepNode):
    """Each `window` elements in another order."""

    window: int
    seed: int

    @property
    def label(self) -> str:
        return f"WindowShuffle(window_size={self.window}, seed={self.seed})"


@final
@dataclass(frozen=True, kw_only=True)
class RebatchNode(StreamStepNode):
    """The rows of the parent's batches in batches of another size."""

    size: int
    drop_remainder: bool = False

    @property
    def label(self) -> str:
        return f"Rebatch({self.size})"


@final
@dataclass(frozen=True, kw_only=True)
class RepeatStreamNode(StreamStepNode):
    """The same elements several times over, or again and again."""

    num_epochs: int | None = None

    @property
    def label(self) -> str:
        return f"Repeat({'' if self.num_epochs is None else self.num_epochs})"


@final
@dataclass(frozen=True, kw_only=True)
class LimitNode(StreamStepNode):
    """The first `count` elements."""

    count: int

    @property
    def label(self) -> str:
        return f"Limit({self.count})"


@final
@dataclass(frozen=True, kw_only=True)
class CacheNode(StreamStepNode):
    """The elements as they are; those that were made once are kept in memory."""

    @property
    def label(self) -> str:
        return "Cache"
