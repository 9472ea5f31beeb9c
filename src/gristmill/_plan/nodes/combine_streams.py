"""Stateful nodes that make one stream of several."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self, final

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._plan.element_spec import ParentSpecs
from gristmill._plan.nodes.base import Node, unknown_index
from gristmill._plan.nodes.stream import Continuation, StageState, StatefulNode, StreamLeafNode
from gristmill._plan.scheduled_mixing import ScheduledMix
from gristmill.errors import PlanError, UnknownIndexError
from gristmill.types import Cursor, Tree


@frozen_dataclass
class CombineStreamsNode(StatefulNode):
    """Elements of several streams."""

    inputs: tuple[Node, ...]
    """The parents."""

    @property
    def parents(self) -> tuple[Node, ...]:
        return self.inputs

    def with_parents(self, parents: Sequence[Node]) -> Self:
        return replace(self, inputs=tuple(parents))


@final
@frozen_dataclass
class MixStreamNode(CombineStreamsNode):
    """Elements of the parents in proportions, until one of the parents is exhausted.

    With `names`, states are kept by name, so that parents may be added or removed between runs.
    """

    proportions: tuple[int, ...]
    names: tuple[str, ...] | None = None
    schedule: ScheduledMix | None = None
    """The proportions at each output, if they change."""

    def __post_init__(self) -> None:
        if not self.inputs:
            raise PlanError("There is nothing to mix. Pass at least one dataset.")
        names = self.names or ()
        if len(set(names)) < len(names):
            raise PlanError(f"The names of mixed datasets must be unique, got {list(names)}.")

    @property
    def label(self) -> str:
        weights = list(self.proportions) if self.schedule is None else self.schedule.label
        return f"Mix(weights={weights})"

    @property
    def shard_problem(self) -> None:
        return None

    @property
    def description(self) -> str:
        # Named datasets and their weights may change between two runs.
        return self.label if self.names is None else "Mix"

    @property
    def parent_names(self) -> tuple[str, ...] | None:
        return self.names

    def name_of(self, number: int) -> str:
        """Return the name of a parent, for errors."""
        return str(number) if self.names is None else repr(self.names[number])

    def by_number(self, cursors: Sequence[Any]) -> list[Any]:
        """Return a cursor for each parent in a list, or `None` for one that was added since."""
        count = len(self.inputs)
        return [*cursors[:count], *[None] * (count - len(cursors))]

    def parent_cursors(self, state: StageState) -> list[Cursor | None]:
        if state is None:
            return [None] * len(self.inputs)
        _, below = state
        named = self.names
        found = self.by_number(below) if named is None else [below.get(name) for name in named]
        return [None if cursor is None else tuple(cursor) for cursor in found]


@final
@frozen_dataclass
class ZipStreamNode(CombineStreamsNode):
    """Tuples of one element of each parent. If `strict`, all parents must end together."""

    strict: bool = True

    def __post_init__(self) -> None:
        if not self.inputs:
            raise PlanError("There is nothing to zip. At least one parent must be provided.")

    @property
    def label(self) -> str:
        return f"Zip({len(self.inputs)} datasets)"

    @property
    def shard_problem(self) -> str | None:
        if all(parent.is_dense for parent in self.inputs):
            return None
        return "the elements of each shard would be in other tuples, as some may be left out"

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        return tuple(spec() for spec in parents)


@final
@frozen_dataclass
class ConcatStreamsNode(CombineStreamsNode):
    """All elements of the first parent, then of the second, and so on.

    A state is the number of the current parent, and the cursors of the parents up to that one.
    """

    def __post_init__(self) -> None:
        if not self.inputs:
            raise PlanError("There is nothing to concatenate. Pass at least one dataset.")

    @property
    def label(self) -> str:
        return f"Concatenate({len(self.inputs)} datasets)"

    @property
    def shard_problem(self) -> None:
        return None

    def parent_cursors(self, state: StageState) -> list[Cursor | None]:
        cursors = [] if state is None else [tuple(cursor) for cursor in state[1]]
        return [*cursors, *[None] * (len(self.inputs) - len(cursors))]


@final
@frozen_dataclass
class ChainNode(CombineStreamsNode):
    """One stream after the other, each from a cursor in `starts`; `None` is its beginning."""

    starts: tuple[Cursor | None, ...]

    @property
    def label(self) -> str:
        return f"Chain({len(self.inputs)} streams)"

    @property
    def shard_problem(self) -> str:
        return "each shard would yield all of its elements"

    def remaining(self, state: StageState) -> list[Continuation]:
        """Return the streams that have not ended in a state."""
        number, cursor = (0, None) if state is None else state
        starts = [*self.starts]
        if number < len(starts) and cursor is not None:
            starts[number] = tuple(cursor)
        streams = zip(self.inputs, starts, strict=True)
        return [Continuation(node, start) for node, start in streams][number:]


@final
@frozen_dataclass
class InterleaveNode(StreamLeafNode):
    """One element of each of `cycle` datasets in turn. Where one ends, the next takes its turn.

    The datasets are not parents: `node_at` makes the node of one when it is opened, or returns
    `None` if that dataset is absent.
    """

    node_at: Callable[[int], Node | None]
    count: int
    cycle: int

    @property
    def label(self) -> str:
        return f"Interleave({self.count} datasets, cycle_length={self.cycle})"

    def index_at(self, cursor: Cursor) -> int:
        _, _, slots = cursor[0]
        if self.count > 1:
            raise self._several("get_next_index")
        return self._only.index_at(tuple(slots[0][1])) if slots and slots[0] else 0

    def cursor_at(self, index: int) -> Cursor:
        if self.count > 1:
            raise self._several("set_next_index")
        return ([0, 1, [[0, self._only.cursor_at(index)]]],)

    def _several(self, function: str) -> UnknownIndexError:
        return UnknownIndexError(
            f"{function} is not supported for {self.label}: the elements of several datasets "
            "alternate until some of them end. Use `get_state` and `set_state`."
        )

    @property
    def _only(self) -> Node:
        """The only dataset."""
        node = self.node_at(0)
        if node is None:
            raise unknown_index(self.label)
        return node
