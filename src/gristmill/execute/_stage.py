"""Stages: what runs in order, in the consumer, each pulling blocks from the one below."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

from gristmill.execute._block import Block
from gristmill.execute._outcome import Outcome
from gristmill.execute._track import Cursor


class Stage(ABC):
    """Gives the blocks of a stream one after the other."""

    @abstractmethod
    def pull(self) -> Outcome | None:
        """Give what comes next, perhaps no element at all; `None` at the end.

        After an error the stage may only be told to `seek`.
        """

    @abstractmethod
    def seek(self, cursor: Cursor) -> None:
        """Go on from a cursor, and forget what was read ahead."""


@final
class StepStage(Stage):
    """Runs a step on each block from below."""

    def __init__(self, run: Callable[[Block], Outcome], parent: Stage) -> None:
        self._run = run
        self._parent = parent
        self._skip = Skip()

    def pull(self) -> Outcome | None:
        outcome = self._parent.pull()
        return None if outcome is None else self._skip.drop(outcome.then(self._run))

    def seek(self, cursor: Cursor) -> None:
        self._skip = Skip(cursor)
        self._parent.seek(cursor)


@final
class Skip:
    """Drops what lies before a cursor: pieces of a flat map that were already given."""

    def __init__(self, cursor: Cursor | None = None) -> None:
        self._cursor = cursor

    def drop(self, outcome: Outcome) -> Outcome:
        """Give the outcome from the cursor on."""
        block = outcome.block
        if self._cursor is None or not len(block):
            return outcome
        passed = block.track.num_until(self._cursor)
        if passed < len(block):
            self._cursor = None
        return Outcome(block[passed:], outcome.error)
