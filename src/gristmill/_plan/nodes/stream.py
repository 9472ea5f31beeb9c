"""Stateful nodes: streams that keep something from one element to the next.

Their elements depend on all elements before, so they run in order, in the process that iterates.
A state consists of cursors of the parents and a few numbers, never of elements.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeAlias, cast, final, runtime_checkable

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._plan.element_spec import ParentSpecs, output_spec, resized_spec
from gristmill._plan.nodes.base import ENDLESS, Collate, EpochChange, Node
from gristmill._plan.nodes.dataset import undefined_spec
from gristmill.errors import PlanError
from gristmill.options import ShardOptions
from gristmill.types import Cursor, Element, SupportsCollate, Tree

StageState: TypeAlias = Any
"""The state of a stateful node, as its stage defines it: lists and numbers. `None` is the start."""


@final
@dataclass(frozen=True)
class Continuation:
    """A stream to continue from a cursor. `None` is its start."""

    node: Node
    cursor: Cursor | None


@frozen_dataclass
class StatefulNode(Node):
    """A stream with a state. Its number of elements is known only at its end."""

    @property
    @abstractmethod
    def shard_problem(self) -> str | None:
        """See `Node`. Each stateful node has an answer of its own."""

    @property
    def is_dense(self) -> bool:
        return False

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.UNKNOWN  # a stream has no epochs

    def length(self) -> int:
        return ENDLESS

    def read_cursors(self, state: StageState) -> list[Cursor | None] | None:
        """Return the cursors up to which the parents were read; `None` if they are not known."""
        return self.parent_cursors(state)

    def parent_cursors(self, state: StageState) -> list[Cursor | None] | None:
        """Return the cursors of the parents in a state, after the elements that are held there.

        `None` if no other shard can continue from a state. The stream is then given to a new shard
        as a whole.
        """
        return None

    def held(self, state: StageState) -> Continuation | None:
        """Return the stream of the elements that are held in a state, if there are any."""
        return None

    def held_inputs(self, state: StageState) -> list[Continuation]:
        """Return streams of what the records that are held in a state become, or their inputs."""
        held = self.held(state)
        return [] if held is None else [held]

    def resharded(
        self,
        shards: Sequence["StatefulNode"],
        states: Sequence[StageState],
        parents: Sequence[Node],
        shard: ShardOptions,
    ) -> Self:
        """Return the node of a new shard, over what remains of the parents.

        Args:
            shards: The nodes of all earlier shards, of which this is the first.
            states: The state of each of them.
            parents: What remains of the parents, for the new shard.
            shard: The new shard.
        """
        return self.with_parents(parents)


@frozen_dataclass
class StreamLeafNode(StatefulNode):
    """A stream without parents."""

    @property
    def shard_problem(self) -> str:
        return "each shard would yield all of its elements"

    @property
    def may_be_shard(self) -> bool:
        return True

    @property
    def parents(self) -> tuple[()]:
        return ()

    def with_parents(self, parents: Sequence[Node]) -> Self:
        return self


@frozen_dataclass
class StreamStepNode(StatefulNode):
    """A stream over one parent."""

    parent: Node

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,)

    def with_parents(self, parents: Sequence[Node]) -> Self:
        (parent,) = parents
        return replace(self, parent=parent)


Records: TypeAlias = tuple[Sequence[Element], Callable[[int], Any]]
"""Some records, and a function that returns the position after the first n of them."""


class RecordStream(Protocol):
    """Records that are read in order, starting at any position. A position is a few integers."""

    @property
    def start(self) -> Any:
        """The position before the first record."""
        ...

    def read_from(self, position: Any, /) -> Iterator[Records]:
        """Yield the records starting at a position, some at a time."""
        ...


@runtime_checkable
class RefusesWorkers(Protocol):
    """A stream that only the process of the consumer can read, such as a generator."""

    def workers_error(self) -> PlanError:
        """Return why workers cannot read it."""
        ...


@final
@frozen_dataclass
class RecordStreamNode(StreamLeafNode):
    """The records of a file, or of another source, that is read from start to end."""

    stream: RecordStream

    @property
    def label(self) -> str:
        return repr(self.stream)

    @property
    def collate(self) -> Collate | None:
        return self.stream.collate if isinstance(self.stream, SupportsCollate) else None


@final
@frozen_dataclass
class CustomStreamNode(StreamLeafNode):
    """A user's own `IterDataset`, read by its iterator."""

    dataset: Any
    name: str

    @property
    def label(self) -> str:
        return self.name

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        raise undefined_spec(self.label)


@frozen_dataclass
class CountingNode(StreamStepNode):
    """A stream that counts its elements: its state is the cursor of the parent and the count."""

    @abstractmethod
    def count_in(self, state: StageState) -> int:
        """Return the number of elements before a state."""

    def parent_cursors(self, state: StageState) -> list[Cursor | None]:
        return [None if state is None else tuple(state[0])]

    def index_at(self, cursor: Cursor) -> int:
        return cursor[0][1]

    def cursor_at(self, index: int) -> Cursor:
        return ([self.parent.cursor_at(index), index],)


@final
@frozen_dataclass
class CountedMapNode(CountingNode):
    """`function`, named `name`, of the number of each element and the element.

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

    @property
    def calls_function(self) -> bool:
        return True

    @property
    def shard_problem(self) -> None:
        return None

    @property
    def description(self) -> str:
        return self.label if self.seed is None else f"{self.label} (seed={self.seed})"

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        return output_spec(self.label, transform, parents)

    def count_in(self, state: StageState) -> int:
        return self.first if state is None else state[1]

    def resharded(
        self,
        shards: Sequence[StatefulNode],
        states: Sequence[StageState],
        parents: Sequence[Node],
        shard: ShardOptions,
    ) -> Self:
        first = max(map(self.count_in, states))
        return replace(self.with_parents(parents), first=first)


@frozen_dataclass
class BoundedNode(CountingNode):
    """A step that changes after `count` elements. The shards of a new run divide what is left."""

    count: int

    def count_in(self, state: StageState) -> int:
        return 0 if state is None else state[1]

    def resharded(
        self,
        shards: Sequence[StatefulNode],
        states: Sequence[StageState],
        parents: Sequence[Node],
        shard: ShardOptions,
    ) -> Self:
        bounds = zip(cast("Sequence[BoundedNode]", shards), states, strict=True)
        remaining = sum(bound.count - bound.count_in(state) for bound, state in bounds)
        count = len(range(shard.shard_index, remaining, shard.shard_count))
        return replace(self.with_parents(parents), count=count)


@final
@frozen_dataclass
class LimitNode(BoundedNode):
    """The first `count` elements."""

    @property
    def label(self) -> str:
        return f"Limit({self.count})"

    @property
    def shard_problem(self) -> str:
        return f"each shard would yield {self.count} elements"


@frozen_dataclass
class HoldingNode(StreamStepNode):
    """A stream that holds elements of its parent: a window, packing bins, a batch that is split.

    A state is the cursor of the parent and some numbers of the stage. If the stream has yielded a
    part of what it holds, they are followed by the number of elements from that cursor on that it
    holds, and the cursor after them.
    """

    state_size: ClassVar[int] = 3
    """The length of a state in which nothing is held."""

    @property
    def shard_problem(self) -> None:
        return None

    def parent_cursors(self, state: StageState) -> list[Cursor | None]:
        if state is None:
            return [None]
        return [tuple(state[0] if len(state) == self.state_size else state[-1])]

    def held(self, state: StageState) -> Continuation | None:
        if state is None or len(state) == self.state_size:
            return None
        cursor, *numbers = state[: self.state_size]
        count, _ = state[self.state_size :]
        limit = LimitNode(site=self.site, parent=self.parent, count=count)
        return Continuation(self.over_held(limit), ([([cursor, 0],), *numbers],))

    def over_held(self, held: LimitNode) -> Self:
        """Return this node over no more than the elements that it holds."""
        return replace(self, parent=held)


@final
@frozen_dataclass
class WindowShuffleStreamNode(HoldingNode):
    """Every `window` consecutive elements in random order."""

    window: int
    seed: int

    @property
    def label(self) -> str:
        return f"WindowShuffle(window_size={self.window}, seed={self.seed})"


@final
@frozen_dataclass
class RebatchNode(HoldingNode):
    """The rows of the parent's batches in batches of another size."""

    state_size: ClassVar[int] = 2

    size: int
    drop_remainder: bool = False

    @property
    def label(self) -> str:
        return f"Rebatch({self.size})"

    @property
    def batch_size(self) -> int:
        return self.size

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        return resized_spec(parents, batch_size=self.size)

    def over_held(self, held: LimitNode) -> Self:
        # Only the remainder of the whole stream is dropped, not that of the held elements.
        return replace(self, parent=held, drop_remainder=False)


@final
@frozen_dataclass
class RepeatStreamNode(StreamStepNode):
    """The same elements `num_epochs` times, or endlessly."""

    num_epochs: int | None = None

    @property
    def label(self) -> str:
        return f"Repeat({'' if self.num_epochs is None else self.num_epochs})"

    @property
    def shard_problem(self) -> None:
        return None


@final
@frozen_dataclass
class CacheNode(StreamStepNode):
    """The elements of the parent, which are kept in memory for later epochs."""

    @property
    def label(self) -> str:
        return "Cache"

    @property
    def shard_problem(self) -> None:
        return None


def refuse_workers(node: Node) -> None:
    """Raise if no element of a plan can be computed by workers."""
    streams = [
        leaf.stream if isinstance(leaf, RecordStreamNode) else leaf for leaf in _leaves(node)
    ]
    refusing = [stream for stream in streams if isinstance(stream, RefusesWorkers)]
    if len(refusing) == len(streams):
        raise refusing[0].workers_error()


def _leaves(node: Node) -> list[Node]:
    return [leaf for parent in node.parents for leaf in _leaves(parent)] or [node]
