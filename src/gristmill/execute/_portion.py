"""Blocks of a stage with a state, in portions that suit the steps above it.

Such a stage gives what it has at hand, as much as what is below made in a moment. The steps above
may take a thousand times as long for it, and nobody should wait for thousands of elements to get
the first: so they are given as many as they can do in about the time of a block.
"""

from dataclasses import replace
from typing import final

from gristmill.execute._executor import BLOCK_SECONDS
from gristmill.execute._feed import BLOCK_POSITIONS, Pace
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage, UpperStage
from gristmill.execute._track import Cursor


@final
class PortionStage(UpperStage):
    """Gives the blocks from below in portions of at most so many elements."""

    def __init__(self, parent: Stage) -> None:
        super().__init__(parent)
        self.pace = Pace(BLOCK_SECONDS, limit=BLOCK_POSITIONS)
        self.last_size = 0
        """How many elements the last portion had."""
        self._whole: Outcome | None = None
        self._place = 0

    def pull(self) -> Outcome | None:
        whole = self.parent.pull() if self._whole is None else self._whole
        if whole is None:
            return None
        first, end = self._place, self._place + self.pace.size
        self.last_size = min(end, len(whole.block)) - first
        if end < len(whole.block):
            self._whole, self._place = whole, end
            return Outcome(whole.block[first:end])
        self._whole, self._place = None, 0
        return replace(whole, block=whole.block[first:], spent=())

    def seek(self, cursor: Cursor) -> Cursor:
        self._whole, self._place = None, 0
        return self.parent.seek(cursor)


@final
class PacedStage(UpperStage):
    """Some steps over portions, which it sizes by what the steps take."""

    def __init__(self, parent: Stage, portions: PortionStage) -> None:
        super().__init__(parent)
        self._portions = portions

    def pull(self) -> Outcome | None:
        outcome = self.parent.pull()
        if outcome is not None and self._portions.last_size:
            self._portions.pace.observe(self._portions.last_size, outcome.seconds)
        return outcome

    def seek(self, cursor: Cursor) -> Cursor:
        return self.parent.seek(cursor)
