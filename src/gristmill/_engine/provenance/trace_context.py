"""What the functions that trace nodes share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, final

from gristmill._engine.provenance.traced import Traced, rows_of
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.sampled import SourceNode
from gristmill._plan.nodes.steps import MapNode
from gristmill.errors import ProvenanceError
from gristmill.types import Element


@final
@dataclass(frozen=True, kw_only=True)
class TraceMode:
    """What the nodes above one need from it."""

    needs_values: bool
    """Whether the values of elements matter, not only their origins."""
    by_index: bool = False
    """Whether the node is part of a dataset, where `None` is an absent element."""

    def wrap(self, value: Element, like: Traced | None) -> Traced | None:
        """Return a value that was made of an element, with the origins of that."""
        return None if self.by_index and value is None else Traced(value, rows_of(like))


class Tracer(Protocol):
    """Traces the nodes of one plan."""

    def trace(self, node: Node, mode: TraceMode, /) -> Node:
        """Return a node and all below it, with traced elements."""
        ...

    def trace_source(self, node: SourceNode, mode: TraceMode, /) -> SourceNode:
        """Return a source whose records are traced."""
        ...

    def number_of(self, source: object, /) -> int:
        """Return the number of a source in the plan, in the order in which they appear."""
        ...


def map_over(node: Node, parent: Node, function: Callable[[Any], Any]) -> MapNode:
    """Return a map that is named like a node."""
    return MapNode(site=node.site, parent=parent, name=node.label, function=function)


def not_traced(node: Node) -> ProvenanceError:
    """Return the error for a node whose elements cannot be traced."""
    return ProvenanceError(
        f"The records cannot be followed through {node.label} ({node.site}). Call `provenance` of "
        "an iterator over the steps before it."
    )
