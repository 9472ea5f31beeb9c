"""The pipeline as data: an immutable tree of nodes. Making one reads nothing and starts nothing."""

from gristmill.plan._batch import BatchNode
from gristmill.plan._combine import (
    ChooseNode,
    ConcatenateNode,
    MixNode,
    SelectNode,
    ZipNode,
    as_proportions,
    choose,
    choose_run,
)
from gristmill.plan._combine_streams import (
    InterleaveNode,
    MixStreamNode,
    ZipStreamNode,
    mixed_order,
)
from gristmill.plan._deal import ChainNode, DealtNode, RestNode
from gristmill.plan._describe import describe
from gristmill.plan._element import AccessNode, CustomNode, FanOutNode, SeededMapNode, SeedNode
from gristmill.plan._filter import FilterNode
from gristmill.plan._flat_map import FlatMapNode
from gristmill.plan._map import MapNode, MapWithIndexNode, RandomMapNode
from gristmill.plan._node import ENDLESS, Node, Step, name_of, parents_of, stable_repr
from gristmill.plan._operation import with_operation
from gristmill.plan._options import FilterLimits, OptionsNode, limits_of
from gristmill.plan._pack import (
    BOSHandling,
    ConcatSplitNode,
    PackedFeature,
    PackNode,
    output_names,
    packed_features,
    tree_features,
)
from gristmill.plan._rearrange import (
    PickNode,
    RearrangeNode,
    RepeatNode,
    ShuffleNode,
    SliceNode,
    WindowShuffleNode,
)
from gristmill.plan._record_stream import Records, RecordStream, RecordStreamNode
from gristmill.plan._sample import SampleNode, shard_for
from gristmill.plan._shards import (
    cut_into_shards,
    has_contiguous_shards,
    replace_below,
    shard_of,
    shard_slice,
    with_parents,
    with_shard,
)
from gristmill.plan._source import SourceNode
from gristmill.plan._stateful import (
    CountedMapNode,
    CustomStreamNode,
    HintNode,
    PrefetchNode,
    ReadNode,
    StatefulNode,
    WorkersNode,
)
from gristmill.plan._stream_steps import (
    CacheNode,
    LimitNode,
    RebatchNode,
    RepeatStreamNode,
    WindowShuffleStreamNode,
)
from gristmill.plan._walk import base_of, bottom_of, sample_of, steps_of

__all__ = [
    "ENDLESS",
    "AccessNode",
    "BOSHandling",
    "BatchNode",
    "CacheNode",
    "ChainNode",
    "ChooseNode",
    "ConcatSplitNode",
    "ConcatenateNode",
    "CountedMapNode",
    "CustomNode",
    "CustomStreamNode",
    "DealtNode",
    "FanOutNode",
    "FilterLimits",
    "FilterNode",
    "FlatMapNode",
    "HintNode",
    "InterleaveNode",
    "LimitNode",
    "MapNode",
    "MapWithIndexNode",
    "MixNode",
    "MixStreamNode",
    "Node",
    "OptionsNode",
    "PackNode",
    "PackedFeature",
    "PickNode",
    "PrefetchNode",
    "RandomMapNode",
    "ReadNode",
    "RearrangeNode",
    "RebatchNode",
    "RecordStream",
    "RecordStreamNode",
    "Records",
    "RepeatNode",
    "RepeatStreamNode",
    "RestNode",
    "SampleNode",
    "SeedNode",
    "SeededMapNode",
    "SelectNode",
    "ShuffleNode",
    "SliceNode",
    "SourceNode",
    "StatefulNode",
    "Step",
    "WindowShuffleNode",
    "WindowShuffleStreamNode",
    "WorkersNode",
    "ZipNode",
    "ZipStreamNode",
    "as_proportions",
    "base_of",
    "bottom_of",
    "choose",
    "choose_run",
    "cut_into_shards",
    "describe",
    "has_contiguous_shards",
    "limits_of",
    "mixed_order",
    "name_of",
    "output_names",
    "packed_features",
    "parents_of",
    "replace_below",
    "sample_of",
    "shard_for",
    "shard_of",
    "shard_slice",
    "stable_repr",
    "steps_of",
    "tree_features",
    "with_operation",
    "with_parents",
    "with_shard",
]
