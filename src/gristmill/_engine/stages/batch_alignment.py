"""Batches that begin elsewhere than at multiples of their size.

As long as every position holds an element, batch b is made of the positions from b * size on, and
anybody can make it. That ends where an element is found to be absent, or where the stream goes on
from a place within a batch because a bad record was skipped before: from there on, batches are
formed in order.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import final

from gristmill._engine.access.cut import splits_batch
from gristmill._engine.access.filter import AbsentElementError
from gristmill._engine.blocks.block_result import BlockResult
from gristmill._engine.stages.base import Stage
from gristmill._plan.nodes.base import Node
from gristmill.types import Cursor


@final
class BatchAlignmentStage(Stage):
    """Runs a plan by positions of its batches for as long as that is the same as in order."""

    def __init__(self, plan: Node, open_stage: Callable[[bool], Stage]) -> None:
        self._plan = plan
        self._open = open_stage
        self._stage = open_stage(False)
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
            self._go_in_order()
            self._stage.seek(self._cursor)
            return replace(result, error=None)
        return result

    @property
    def start(self) -> Cursor:
        return self._stage.start

    def seek(self, cursor: Cursor) -> Cursor:
        self._cursor = cursor = tuple(cursor)
        if not self._is_in_order and splits_batch(self._plan, cursor):
            self._go_in_order()
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

    def _go_in_order(self) -> None:
        self._stage.close()
        self._stage.dispose()
        self._stage = self._open(True)
        self._is_in_order = True
        if self._is_closed:  # by another thread, meanwhile
            self._stage.close()
