"""Blocks of a stage with a state, in portions that suit the steps above it.

Such a stage gives what it has at hand, as much as what is below made in a moment. The steps above
may take a thousand times as long for it, and nobody should wait for thousands of elements to get
the first: so they are given as many as they can do in about the time of a block.
"""

from dataclasses import replace
from typing import final

from gristmill._engine.blocks.block_result import BlockResult
from gristmill._engine.executors.base import BLOCK_SECONDS
from gristmill._engine.stages.base import Stage, UpperStage
from gristmill._engine.stages.ranges import MAX_BLOCK_POSITIONS, BlockSizer
from gristmill.types import Cursor


@final
class RechunkStage(UpperStage):
    """Gives the blocks from below in portions of at most so many elements."""

    def __init__(self, parent: Stage) -> None:
        super().__init__(parent)
        self.block_sizer = BlockSizer(BLOCK_SECONDS, limit=MAX_BLOCK_POSITIONS)
        self.last_size = 0
        """How many elements the last portion had."""
        self._whole: BlockResult | None = None
        self._place = 0

    def pull(self) -> BlockResult | None:
        whole = self.parent.pull() if self._whole is None else self._whole
        if whole is None:
            return None
        first, end = self._place, self._place + self.block_sizer.size
        self.last_size = min(end, len(whole.block)) - first
        if end < len(whole.block):
            self._whole, self._place = whole, end
            return BlockResult(whole.block[first:end])
        self._whole, self._place = None, 0
        return replace(whole, block=whole.block[first:], step_seconds=())

    def seek(self, cursor: Cursor) -> Cursor:
        self._whole, self._place = None, 0
        return self.parent.seek(cursor)


@final
class AdaptiveBlockStage(UpperStage):
    """Some steps over portions, which it sizes by what the steps take."""

    def __init__(self, parent: Stage, portions: RechunkStage) -> None:
        super().__init__(parent)
        self._portions = portions

    def pull(self) -> BlockResult | None:
        result = self.parent.pull()
        if result is not None and self._portions.last_size:
            self._portions.block_sizer.observe(self._portions.last_size, result.seconds)
        return result

    def seek(self, cursor: Cursor) -> Cursor:
        return self.parent.seek(cursor)
