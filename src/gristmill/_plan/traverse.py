"""Walk a plan."""

from collections.abc import Iterator

from gristmill._plan.nodes.base import Node, Step
from gristmill._plan.nodes.batch import BatchNode
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.sample import SampleNode


def steps_of(plan: Node) -> list[Step | BatchNode]:
    """Give the steps above the sampled records, bottom up."""
    return list(_down(plan))[::-1]


def bottom_of(plan: Node) -> Node:
    """Give what the steps stand on."""
    node = plan
    for step in _down(plan):
        node = step.parent
    return node


def base_of(plan: Node) -> SampleNode | AccessNode:
    """Give the records at the bottom, sampled or those of a dataset."""
    node = bottom_of(plan)
    if not isinstance(node, SampleNode | AccessNode):
        raise TypeError(f"{node.label} has no records by position")
    return node


def sample_of(plan: Node) -> SampleNode:
    """Give the sampled records at the bottom."""
    node = bottom_of(plan)
    if not isinstance(node, SampleNode):
        raise TypeError(f"{node.label} is not sampled")
    return node


def _down(plan: Node) -> Iterator[Step | BatchNode]:
    node = plan
    while isinstance(node, Step | BatchNode):
        yield node
        node = node.parent
