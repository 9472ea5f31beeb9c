"""The stage for each kind of stateful node."""

from collections.abc import Callable
from typing import Any

from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.batching.bucket import BucketStage, HeldElementsStage
from gristmill._engine.stateful.batching.rebatch import RebatchStage
from gristmill._engine.stateful.batching.sliding_window import SlidingWindowStage
from gristmill._engine.stateful.combine.chain import ChainStage, ConcatStreamsStage
from gristmill._engine.stateful.combine.mix import MixStage
from gristmill._engine.stateful.combine.zip import ZipStage
from gristmill._engine.stateful.counted_map import CountedMapStage
from gristmill._engine.stateful.order.cache import CacheStage
from gristmill._engine.stateful.order.limit import LimitStage
from gristmill._engine.stateful.order.repeat import RepeatStage
from gristmill._engine.stateful.order.skip import SkipStage
from gristmill._engine.stateful.order.window_shuffle import WindowShuffleStage
from gristmill._engine.stateful.packing.concat_split import ConcatSplitStage
from gristmill._engine.stateful.packing.first_fit import PackStage
from gristmill._engine.stateful.record_stream import RecordStreamStage
from gristmill._engine.stateful.scan import ScanStage
from gristmill._engine.stateful.user_streams.custom import CustomStage
from gristmill._engine.stateful.user_streams.record_operations import (
    OperationsStage,
    PackBatchesStage,
)
from gristmill._plan.nodes.buckets import BucketStreamNode, HeldElementsNode
from gristmill._plan.nodes.combine_streams import (
    ChainNode,
    ConcatStreamsNode,
    MixStreamNode,
    ZipStreamNode,
)
from gristmill._plan.nodes.packing import ConcatSplitNode, PackNode
from gristmill._plan.nodes.record_operations import OperationsNode, PackBatchesNode
from gristmill._plan.nodes.stream import (
    CacheNode,
    CountedMapNode,
    CustomStreamNode,
    LimitNode,
    RebatchNode,
    RecordStreamNode,
    RepeatStreamNode,
    StatefulNode,
    WindowShuffleStreamNode,
)
from gristmill._plan.nodes.stream_steps import ScanNode, SkipNode, SlidingWindowNode

STAGES: dict[type[StatefulNode], Callable[..., Stage]] = {
    BucketStreamNode: BucketStage,
    CacheNode: CacheStage,
    ChainNode: ChainStage,
    ConcatStreamsNode: ConcatStreamsStage,
    ConcatSplitNode: ConcatSplitStage,
    CountedMapNode: CountedMapStage,
    CustomStreamNode: CustomStage,
    HeldElementsNode: HeldElementsStage,
    LimitNode: LimitStage,
    MixStreamNode: MixStage,
    OperationsNode: OperationsStage,
    PackBatchesNode: PackBatchesStage,
    PackNode: PackStage,
    RebatchNode: RebatchStage,
    RecordStreamNode: RecordStreamStage,
    RepeatStreamNode: RepeatStage,
    ScanNode: ScanStage,
    SkipNode: SkipStage,
    SlidingWindowNode: SlidingWindowStage,
    WindowShuffleStreamNode: WindowShuffleStage,
    ZipStreamNode: ZipStage,
}


def open_stateful(node: StatefulNode, parents: list[Stage], *, num_flat_maps: int) -> Stage:
    """Return the stage of a node, on top of the stages of its parents."""
    stage: Any = STAGES[type(node)]
    return stage(node, parents, num_flat_maps=num_flat_maps)
