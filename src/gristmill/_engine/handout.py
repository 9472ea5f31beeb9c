"""Hand out a block to the user element by element."""

from typing import final

from gristmill._engine.blocks.block_result import BlockResult
from gristmill.types import Cursor, Element


@final
class Handout:
    """The elements of a block that the user has not taken yet, and the cursors around them.

    A stream replaces it as a whole, in one assignment, and takes elements with `waiting.pop()`. So
    at any moment, also when Ctrl-C interrupts the stream, the number of remaining elements
    determines which one was taken last.
    """

    __slots__ = ("_lineage", "_start", "error", "waiting")

    def __init__(self, start: Cursor, result: BlockResult | None = None) -> None:
        """Hand out the elements of `result`, which follow the cursor `start`."""
        self._start = start
        self._lineage = None if result is None else result.block.lineage
        self.error = None if result is None else result.error
        """The error that the stream raises after the last element, if there is one."""
        self.waiting: list[Element] = [] if result is None else result.block.rows()[::-1]
        """The elements that were not taken yet, the next one last."""

    @property
    def cursor(self) -> Cursor:
        """The cursor after the last element that was taken."""
        return self.cursor_before(len(self.waiting))

    def cursor_before(self, num_waiting: int) -> Cursor:
        """Return the cursor at the moment when `num_waiting` elements are waiting."""
        lineage = self._lineage
        if lineage is None or len(lineage) == num_waiting:
            return self._start
        return lineage.after(len(lineage) - num_waiting - 1)

    @property
    def end(self) -> Cursor:
        """The cursor after the last element of the block."""
        lineage = self._lineage
        if lineage is None or not len(lineage):
            return self._start
        return lineage.after(len(lineage) - 1)
