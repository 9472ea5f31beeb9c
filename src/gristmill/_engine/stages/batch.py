"""Form batches of elements in the order of the stream."""

import time
from typing import final

from gristmill._engine.access.batch import batch_ends, make_batches
from gristmill._engine.blocks.block import Block, concatenate
from gristmill._engine.blocks.block_result import BlockResult
from gristmill._engine.stages.base import SegmentStage, Stage, UpperStage, settle_below
from gristmill._metrics.counters import StepClock
from gristmill._metrics.profiler import named
from gristmill._plan.nodes.steps import BatchNode
from gristmill.types import Cursor


@final
class BatchStage(UpperStage, SegmentStage):
    """Stacks elements in their order, and keeps those of an incomplete batch for the next block."""

    def __init__(self, node: BatchNode, parent: Stage, clock: StepClock) -> None:
        super().__init__(parent)
        self._node = node
        self._make = named(node.label, make_batches)
        self._clock = clock
        self._pending: list[Block] = []

    def pull(self) -> BlockResult | None:
        result = self.parent.pull()
        if result is not None and len(result.block):
            self._pending.append(result.block)
        count = sum(map(len, self._pending))
        is_last = result is None and not self._node.drop_remainder
        num_ready = count if is_last else count - count % self._node.size
        if not num_ready:
            return result if result is None else result.with_block(Block.empty())
        start = time.perf_counter()
        block = concatenate(self._pending)
        self._pending = [block[num_ready:]] if num_ready < count else []
        result = BlockResult(Block.empty()) if result is None else result
        ends = batch_ends(self._node.size, num_ready)
        batches = result.with_block(block[:num_ready]).then(
            lambda block: self._make(self._node, block, ends)
        )
        self._clock.add(time.perf_counter() - start)
        return batches

    def settle(self, num_missing: int = 0) -> Cursor | None:
        count = sum(map(len, self._pending))
        num_batches = max(num_missing, 1) if count else num_missing
        return settle_below(
            self.parent, num_batches * self._node.size - count if num_batches else 0
        )

    def seek(self, cursor: Cursor) -> Cursor:
        self._pending = []
        return self.parent.seek(cursor)
