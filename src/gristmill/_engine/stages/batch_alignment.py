"""Change from batches at multiples of their size to batches that are formed in order.

As long as every position holds an element, batch b consists of the positions from b * size on, and
can be computed independently of all others. That ends at the first absent element, and where the
stream resumes from a position within a batch, because a bad record was skipped before it. From
there on, batches are formed in order.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import final

from gristmill._engine.access.cut import splits_batch
from gristmill._engine.access.filter import AbsentElementError
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.stages.base import Stage
from gristmill._plan.nodes.base import Node
from gristmill.types import Cursor


class SegmentBuilder(ABC):
    """Opens the stages of one segment of a plan, as often as they are needed."""

    plan: Node

    @abstractmethod
    def open(self, *, in_order: bool) -> Stage:
        """Return a new stage over the steps of the segment.

        Args:
            in_order: Whether batches are formed in order, from wherever the stream is.
                Otherwise they start at multiples of their size.
        """


@final
class BatchAlignmentStage(Stage):
    """Computes batches independently for as long as that yields the same batches as in order."""

    def __init__(self, segment: SegmentBuilder) -> None:
        self._segment = segment
        self._stage = segment.open(in_order=False)
        self._is_in_order = False
        self._is_closed = False
        self._cursor = self._stage.start

    def pull(self) -> BlockResult | None:
        result = self._stage.pull()
        if result is None:
            return None
        if len(result.block):
            self._cursor = result.block.lineage.after(len(result.block) - 1)
        if isinstance(result.error, AbsentElementError):
            self._form_in_order()
            self._stage.seek(self._cursor)
            return replace(result, error=None)
        return result

    @property
    def start(self) -> Cursor:
        return self._stage.start

    def seek(self, cursor: Cursor) -> Cursor:
        self._cursor = cursor = tuple(cursor)
        if not self._is_in_order and splits_batch(self._segment.plan, cursor):
            self._form_in_order()
        return self._stage.seek(cursor)

    @property
    def needs_thread(self) -> bool:
        return self._stage.needs_thread

    def interrupt(self) -> None:
        self._stage.interrupt()

    def close(self) -> None:
        self._is_closed = True
        self._stage.close()

    def dispose(self) -> None:
        self._stage.dispose()

    def _form_in_order(self) -> None:
        """Replace the stage by one that forms batches in order."""
        self._stage.close()
        self._stage.dispose()
        self._stage = self._segment.open(in_order=True)
        self._is_in_order = True
        if self._is_closed:  # by another thread in the meantime
            self._stage.close()
