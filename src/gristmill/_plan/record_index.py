"""Find the record of a source that an element of a dataset is made of."""

import numpy as np

from gristmill._base.indices import as_indices
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.buckets import BucketNode
from gristmill._plan.nodes.cached import StoredNode
from gristmill._plan.nodes.combine import ChooseNode
from gristmill._plan.nodes.dataset import CustomNode
from gristmill._plan.nodes.hints import all_nodes
from gristmill._plan.nodes.rearrange import RearrangeNode
from gristmill._plan.nodes.sampled import SourceNode
from gristmill._plan.nodes.steps import BatchNode, FanOutNode


def record_index(node: Node, index: int) -> int | None:
    """Return the index in its source of the record of an element.

    Args:
        node: A dataset, or the elements of one as a stream.
        index: The index of the element.

    Returns:
        The index, or `None` if the element is made of several records.
    """
    while node.parents:
        number = 0
        if isinstance(node, RearrangeNode):
            index = int(node.to_parent(as_indices(np.array([index])))[0])
        elif isinstance(node, ChooseNode):
            numbers, within = node.locate(as_indices(np.array([index])))
            number, index = int(numbers[0]), int(within[0])
        elif isinstance(node, FanOutNode):
            index //= node.max_fan_out
        elif isinstance(node, StoredNode):
            index %= node.length()
        elif isinstance(node, BatchNode | BucketNode) or len(node.parents) > 1:
            return None
        node = node.parents[number]
    return index % node.length() if isinstance(node, SourceNode | CustomNode) else None


def combines_records(node: Node) -> bool:
    """Return whether elements of a dataset are made of several records each: of batches."""
    return any(isinstance(one, BatchNode | BucketNode) for one in all_nodes(node))
