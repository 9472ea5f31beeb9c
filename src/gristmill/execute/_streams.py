"""Which stage runs which node with a state of its own."""

from collections.abc import Callable
from typing import Any

from gristmill.execute._cache import CacheStage
from gristmill.execute._chain import ChainStage
from gristmill.execute._concat_split import ConcatSplitStage
from gristmill.execute._custom import CustomStage
from gristmill.execute._limit import LimitStage
from gristmill.execute._mix import MixStage
from gristmill.execute._number import CountedMapStage
from gristmill.execute._pack import PackStage
from gristmill.execute._rebatch import RebatchStage
from gristmill.execute._record_stream import RecordStreamStage
from gristmill.execute._repeat import RepeatStage
from gristmill.execute._stage import Stage
from gristmill.execute._window import WindowShuffleStage
from gristmill.execute._zip import ZipStage
from gristmill.plan import (
    CacheNode,
    ChainNode,
    ConcatSplitNode,
    CountedMapNode,
    CustomStreamNode,
    LimitNode,
    MixStreamNode,
    PackNode,
    RebatchNode,
    RecordStreamNode,
    RepeatStreamNode,
    StatefulNode,
    WindowShuffleStreamNode,
    ZipStreamNode,
)

_STAGES: dict[type[StatefulNode], Callable[..., Stage]] = {
    CacheNode: CacheStage,
    ChainNode: ChainStage,
    ConcatSplitNode: ConcatSplitStage,
    CountedMapNode: CountedMapStage,
    CustomStreamNode: CustomStage,
    LimitNode: LimitStage,
    MixStreamNode: MixStage,
    PackNode: PackStage,
    RebatchNode: RebatchStage,
    RecordStreamNode: RecordStreamStage,
    RepeatStreamNode: RepeatStage,
    WindowShuffleStreamNode: WindowShuffleStage,
    ZipStreamNode: ZipStage,
}


def open_stateful(node: StatefulNode, parents: list[Stage], *, num_flat_maps: int) -> Stage:
    """Give the stage of a node over those of its parents."""
    stage: Any = _STAGES[type(node)]
    return stage(node, parents, num_flat_maps=num_flat_maps)
