"""The pipeline as data: an immutable tree of nodes. Making one reads nothing and starts nothing."""

from gristmill.plan._batch import BatchNode
from gristmill.plan._filter import FilterNode
from gristmill.plan._flat_map import FlatMapNode
from gristmill.plan._map import MapNode, MapWithIndexNode, RandomMapNode
from gristmill.plan._node import ENDLESS, Node, Step
from gristmill.plan._operation import with_operation
from gristmill.plan._sample import SampleNode, shard_for
from gristmill.plan._source import SourceNode
from gristmill.plan._walk import sample_of, steps_of

__all__ = [
    "ENDLESS",
    "BatchNode",
    "FilterNode",
    "FlatMapNode",
    "MapNode",
    "MapWithIndexNode",
    "Node",
    "RandomMapNode",
    "SampleNode",
    "SourceNode",
    "Step",
    "sample_of",
    "shard_for",
    "steps_of",
    "with_operation",
]
