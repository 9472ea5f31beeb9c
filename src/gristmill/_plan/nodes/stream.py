"""Stream nodes that keep something from one element to the next.

What they give depends on all that came before, so they run in order, in the process that iterates.
Their state tells where to go on: positions in what is below, never elements.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from gristmill._data.sampling.shard_lengths import ENDLESS
from gristmill._plan.nodes.base import Node
from gristmill.options import MultiprocessingOptions, ReadOptions, WorkerOptions
from gristmill.types import Element


@dataclass(frozen=True, kw_only=True)
class StatefulNode(Node):
    """A stream of its own over others; how many elements it has is known at its end."""

    parents: tuple[Node, ...]

    @property
    def is_dense(self) -> bool:
        return False

    def length(self) -> int:
        return ENDLESS


@dataclass(frozen=True, kw_only=True)
class HintNode(Node):
    """The parent as it is, and something about how to run it."""

    parent: Node

    @property
    def is_dense(self) -> bool:
        return self.parent.is_dense

    def length(self) -> int:
        return self.parent.length()


@final
@dataclass(frozen=True, kw_only=True)
class CustomStreamNode(StatefulNode):
    """An `IterDataset` of the user's own: whatever its iterator gives."""

    dataset: Any
    name: str

    @property
    def label(self) -> str:
        return self.name


@final
@dataclass(frozen=True, kw_only=True)
class CountedMapNode(StatefulNode):
    """`function` of each element's number and the element.

    With a `seed`, of the element and a generator made from seed and number.
    """

    function: Callable[..., Element]
    name: str
    seed: int | None = None
    first: int = 0
    """The number of the first element."""

    @property
    def label(self) -> str:
        return f"{'MapWithIndex' if self.seed is None else 'RandomMap'} {self.name}"


@final
@dataclass(frozen=True, kw_only=True)
class ReadNode(HintNode):
    """How many threads read, and how far ahead."""

    options: ReadOptions

    @property
    def label(self) -> str:
        return f"ReadOptions(num_threads={self.options.num_threads})"


@final
@dataclass(frozen=True, kw_only=True)
class WorkersNode(HintNode):
    """What is below may be computed in worker processes; what is above is not."""

    options: MultiprocessingOptions
    worker: WorkerOptions

    @property
    def label(self) -> str:
        return f"Workers({self.options.num_workers})"


@final
@dataclass(frozen=True, kw_only=True)
class PrefetchNode(HintNode):
    """What is below may run ahead in a thread."""

    buffer_size: int

    @property
    def label(self) -> str:
        return f"ThreadPrefetch({self.buffer_size})"
