"""The stage for each kind of stateful node."""

from collections.abc import Callable
from typing import Any

from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.cache import CacheStage
from gristmill._engine.stateful.chain import ChainStage
from gristmill._engine.stateful.counted_map import CountedMapStage
from gristmill._engine.stateful.custom import CustomStage
from gristmill._engine.stateful.limit import LimitStage
from gristmill._engine.stateful.mix import MixStage
from gristmill._engine.stateful.packing.concat_split import ConcatSplitStage
from gristmill._engine.stateful.packing.first_fit import PackStage
from gristmill._engine.stateful.rebatch import RebatchStage
from gristmill._engine.stateful.record_operations import OperationsStage, PackBatchesStage
from gristmill._engine.stateful.record_stream import RecordStreamStage
from gristmill._engine.stateful.repeat import RepeatStage
from gristmill._engine.stateful.window_shuffle import WindowShuffleStage
from gristmill._engine.stateful.zip import ZipStage
from gristmill._plan.nodes.combine_streams import ChainNode, MixStreamNode, ZipStreamNode
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

STAGES: dict[type[StatefulNode], Callable[..., Stage]] = {
    CacheNode: CacheStage,
    ChainNode: ChainStage,
    ConcatSplitNode: ConcatSplitStage,
    CountedMapNode: CountedMapStage,
    CustomStreamNode: CustomStage,
    LimitNode: LimitStage,
    MixStreamNode: MixStage,
    OperationsNode: OperationsStage,
    PackBatchesNode: PackBatchesStage,
    PackNode: PackStage,
    RebatchNode: RebatchStage,
    RecordStreamNode: RecordStreamStage,
    RepeatStreamNode: RepeatStage,
    WindowShuffleStreamNode: WindowShuffleStage,
    ZipStreamNode: ZipStage,
}


def open_stateful(node: StatefulNode, parents: list[Stage], *, num_flat_maps: int) -> Stage:
    """Return the stage of a node, on top of the stages of its parents."""
    stage: Any = STAGES[type(node)]
    return stage(node, parents, num_flat_maps=num_flat_maps)
