"""Stateful nodes over one stream: windows that overlap, a carried state, and skipped elements."""

from collections.abc import Callable
from typing import Any, ClassVar, final

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._plan.element_spec import ParentSpecs, batch_spec, output_spec
from gristmill._plan.nodes.base import Collate
from gristmill._plan.nodes.stream import (
    BoundedNode,
    StageState,
    StreamStepNode,
)
from gristmill.types import Cursor, Element, Tree


@final
@frozen_dataclass
class SlidingWindowNode(StreamStepNode):
    """Batches of `size` consecutive elements, one from every `stride`-th element on.

    A state is the cursor before the next window, and whether the last window was emitted.
    """

    user_part: ClassVar[str] = "function"

    size: int
    stride: int
    drop_remainder: bool = False
    function: Collate | None = None

    def __post_init__(self) -> None:
        if self.function is None:
            object.__setattr__(self, "function", self.parent.collate)

    @property
    def label(self) -> str:
        dropped = ", drop_remainder=True" if self.drop_remainder else ""
        return f"Window({self.size}, stride={self.stride}{dropped})"

    @property
    def calls_function(self) -> bool:
        return True

    @property
    def shard_problem(self) -> None:
        return None

    @property
    def batch_size(self) -> int:
        return self.size

    @property
    def collate(self) -> None:
        return None

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        return batch_spec(
            self.function, parents, batch_size=self.size, drop_remainder=self.drop_remainder
        )


@final
@frozen_dataclass
class ScanNode(StreamStepNode):
    """`function`, named `name`, of a carried value and each element: the next value, an output.

    A state is the cursor of the parent and the carried value, as JSON.
    """

    function: Callable[[Any, Element], tuple[Any, Element]]
    name: str
    initial: Any

    @property
    def label(self) -> str:
        return f"Scan {self.name}"

    @property
    def calls_function(self) -> bool:
        return True

    def read_cursors(self, state: StageState) -> list[Cursor | None]:
        return [None if state is None else tuple(state[0])]

    @property
    def shard_problem(self) -> None:
        return None

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        return output_spec(self.label, transform, parents)


@final
@frozen_dataclass
class SkipNode(BoundedNode):
    """All elements after the first `count`. The state counts those that were skipped."""

    @property
    def label(self) -> str:
        return f"Skip({self.count})"

    @property
    def shard_problem(self) -> str:
        return f"each shard would skip {self.count} elements"

    def index_at(self, cursor: Cursor) -> int:
        below, num_skipped = cursor[0]
        index = self.parent.index_at(tuple(below))
        return index - num_skipped

    def cursor_at(self, index: int) -> Cursor:
        return ([self.parent.cursor_at(index + self.count), self.count],)
