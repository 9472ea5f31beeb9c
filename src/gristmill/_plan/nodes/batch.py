"""The step that makes one element of many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from gristmill._plan.nodes.base import ENDLESS, Node, parents_of
from gristmill._plan.nodes.record_stream import RecordStreamNode
from gristmill._plan.nodes.source import SourceNode
from gristmill.types import Element, SupportsCollate


@final
@dataclass(frozen=True, kw_only=True)
class BatchNode(Node):
    """Every `size` consecutive elements of `parent`, stacked, or given to `function`.

    Over a dense parent it is dense itself: batch b is made of the parent's positions from
    b * size on. Over a sparse one, which positions go into it is known only in order.
    """

    parent: Node
    size: int
    drop_remainder: bool = False
    function: Callable[[Sequence[Any]], Element] | None = None
    """By default what the source says, if it says anything."""

    def __post_init__(self) -> None:
        if self.function is None:
            object.__setattr__(self, "function", _collate_of(self.parent))

    @property
    def label(self) -> str:
        dropped = ", drop_remainder=True" if self.drop_remainder else ""
        return f"Batch({self.size}{dropped})"

    @property
    def is_dense(self) -> bool:
        return self.parent.is_dense

    @property
    def records_per_position(self) -> int:
        return self.parent.records_per_position * self.size

    def length(self) -> int:
        total = self.parent.length()
        if total == ENDLESS:
            return ENDLESS
        full, remaining = divmod(total, self.size)
        return full if self.drop_remainder or not remaining else full + 1


def _collate_of(node: Any) -> Callable[[Sequence[Any]], Element] | None:
    """Find how the elements that come from below are batched, if all in one way of their own."""
    match node:
        case SourceNode(source=home) | RecordStreamNode(stream=home):
            return home.collate if isinstance(home, SupportsCollate) else None
        case BatchNode():
            return None
        case _:
            found = [_collate_of(parent) for parent in parents_of(node)]
            return found[0] if found and all(other is found[0] for other in found) else None
