"""Blocks of a stateful stage, in chunks of a size that suits the steps above it.

A stateful stage returns what it has buffered, as much as the stages below computed in one block.
The steps above may take a thousand times as long for it, and the consumer should not wait for
thousands of elements to get the first. So these steps get as many as they can compute in about the
time of a block.
"""

from dataclasses import replace
from typing import final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.stages.base import Stage, UpperStage
from gristmill._engine.tuning.block_size import first_block_size, next_block_size
from gristmill._engine.tuning.measure import BlockStats
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill.types import Cursor


@final
class RechunkStage(UpperStage):
    """Returns the blocks from below in chunks of a limited size."""

    def __init__(self, parent: Stage, *, policy: TuningPolicy) -> None:
        super().__init__(parent)
        self._policy = policy
        self._block_size = first_block_size(policy.inline_block_s, policy)
        self._whole: BlockResult | None = None
        self._offset = 0
        self._num_positions = 0

    def pull(self) -> BlockResult | None:
        whole = self.parent.pull() if self._whole is None else self._whole
        if whole is None:
            return None
        first, end = self._offset, self._offset + self._block_size.size
        self._num_positions = min(end, len(whole.block)) - first
        if end < len(whole.block):
            self._whole, self._offset = whole, end
            return BlockResult(whole.block[first:end])
        self._whole, self._offset = None, 0
        return replace(whole, block=whole.block[first:], step_times=())

    def observe(self, result: BlockResult) -> None:
        """Learn from what the steps above took for the last chunk."""
        if self._num_positions:
            stats = BlockStats(
                num_elements=len(result.block),
                num_positions=self._num_positions,
                wall_s=result.seconds,
            )
            self._block_size = next_block_size(self._block_size, stats, self._policy)

    def seek(self, cursor: Cursor) -> Cursor:
        self._whole, self._offset = None, 0
        return self.parent.seek(cursor)


@final
class AdaptiveBlockStage(UpperStage):
    """Some steps over chunks, whose size adapts to the time that the steps take."""

    def __init__(self, parent: Stage, chunks: RechunkStage) -> None:
        super().__init__(parent)
        self._chunks = chunks

    def pull(self) -> BlockResult | None:
        result = self.parent.pull()
        if result is not None:
            self._chunks.observe(result)
        return result

    def seek(self, cursor: Cursor) -> Cursor:
        return self.parent.seek(cursor)
