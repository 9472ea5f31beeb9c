"""Batches that begin elsewhere than at multiples of their size.

As long as every position holds an element, batch b is made of the positions from b * size on, and
anybody can make it. That ends where an element is found to be absent, or where the stream goes on
from a place within a batch because a bad record was skipped before: from there on, batches are
formed in order.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import final

from gristmill.execute._batch import SparseError
from gristmill.execute._outcome import Outcome
from gristmill.execute._reader import splits_batch
from gristmill.execute._stage import Stage
from gristmill.execute._track import Cursor
from gristmill.plan import Node


@final
class AlignStage(Stage):
    """Runs a plan by positions of its batches for as long as that is the same as in order."""

    def __init__(self, plan: Node, open_stage: Callable[[bool], Stage]) -> None:
        self._plan = plan
        self._open = open_stage
        self._stage = open_stage(False)
        self._is_in_order = False
        self._is_closed = False
        self._cursor = self._stage.start

    def pull(self) -> Outcome | None:
        outcome = self._stage.pull()
        if outcome is None:
            return None
        if len(outcome.block):
            self._cursor = outcome.block.track.after(len(outcome.block) - 1)
        if isinstance(outcome.error, SparseError):
            self._go_in_order()
            self._stage.seek(self._cursor)
            return replace(outcome, error=None)
        return outcome

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
