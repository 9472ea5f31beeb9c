"""Find the steps of a stream, and the node at its bottom."""

from collections.abc import Iterator

from gristmill._plan.nodes.base import Node, RecordsNode, Step
from gristmill._plan.nodes.hints import HintNode
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.nodes.stream import StreamStepNode


def steps_of(plan: Node) -> list[Step]:
    """Return the steps at the top of a plan, bottom up."""
    return [node for node in _segment(plan) if isinstance(node, Step)][::-1]


def bottom_of(plan: Node) -> Node:
    """Return the node below the steps at the top of a plan."""
    node = plan
    for step in _segment(plan):
        node = step.parent
    return node


def base_of(plan: Node) -> RecordsNode:
    """Return the records below the steps: those of a sampler or a dataset."""
    node = bottom_of(plan)
    if not isinstance(node, RecordsNode):
        raise TypeError(f"{node.label} has no records by position")
    return node


def sample_of(plan: Node) -> SampleNode:
    """Return the sampled records below the steps."""
    node = bottom_of(plan)
    if not isinstance(node, SampleNode):
        raise TypeError(f"{node.label} is not sampled")
    return node


def sample_below(plan: Node) -> SampleNode:
    """Return the sampled records of a plan, also below operations over iterators."""
    node = bottom_of(plan)
    while isinstance(node, StreamStepNode):
        node = bottom_of(node.parent)
    return sample_of(node)


def _segment(plan: Node) -> Iterator[Step | HintNode]:
    """Yield the nodes that share the cursors of the node below them, top down."""
    node = plan
    while isinstance(node, Step | HintNode):
        yield node
        node = node.parent
