"""Make the nodes of operations that depend on the order of a stream."""

from typing import TypeAlias

from gristmill._data.batching.buckets import BucketByLength
from gristmill._data.transforms.stream_operations import Scan, Unbatch, Window, rows_of
from gristmill._plan.nodes.base import ENDLESS, Node, name_of
from gristmill._plan.nodes.buckets import BucketStreamNode
from gristmill._plan.nodes.steps import FlatMapNode
from gristmill._plan.nodes.stream_steps import ScanNode, SlidingWindowNode

StreamOperation: TypeAlias = BucketByLength | Scan | Unbatch | Window


def with_stream_operation(parent: Node, operation: StreamOperation, *, site: str) -> Node:
    """Return the node of an operation over a stream."""
    match operation:
        case BucketByLength():
            return BucketStreamNode(site=site, parent=parent, buckets=operation)
        case Unbatch():
            # As for any flat map of a stream, the number of outputs is not limited.
            return FlatMapNode(
                site=site, parent=parent, name="unbatch", function=rows_of, max_fan_out=ENDLESS - 1
            )
        case Window():
            return SlidingWindowNode(
                site=site,
                parent=parent,
                size=operation.size,
                stride=operation.stride or operation.size,
                drop_remainder=operation.drop_remainder,
                function=operation.batch_fn,
            )
        case Scan():
            return ScanNode(
                site=site,
                parent=parent,
                function=operation.function,
                name=name_of(operation.function),
                initial=operation.initial,
            )
