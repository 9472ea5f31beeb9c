"""Stages: what runs in order, in the consumer, each pulling blocks from the one below.

A failure never takes with it what comes before it in the stream: a block that fails is tried again
in pieces, and what the pieces gave up to the failure is handed on together with it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, final

from gristmill.execute._block import Block, concatenate
from gristmill.execute._track import Cursor

Sliceable = TypeVar("Sliceable", range, Block)


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """Some elements, and the error that stands right after them, if any."""

    block: Block
    error: BaseException | None = None
    seconds: float = 0.0

    def followed_by(self, parent: "Outcome | None") -> "Outcome":
        """Give this outcome with the error of the one it was made from, if it has none itself."""
        return self if self.error or parent is None else Outcome(self.block, parent.error)


def attempt(run: Callable[[Sliceable], Block], work: Sliceable, *, step: int = 1) -> Outcome:
    """Run the work whole; if it fails, by pieces of `step`, as far as it goes."""
    try:
        return Outcome(run(work))
    except Exception as error:
        if len(work) <= step:
            return Outcome(Block.empty(), error)
    done = [Block.empty()]
    for first in range(0, len(work), step):
        try:
            done.append(run(work[first : first + step]))
        except Exception as error:
            return Outcome(concatenate(done), error)
    return Outcome(concatenate(done))


class Stage(ABC):
    """Gives the blocks of a stream one after the other."""

    @abstractmethod
    def pull(self) -> Outcome | None:
        """Give what comes next, perhaps no element at all; `None` at the end."""

    @abstractmethod
    def seek(self, cursor: Cursor) -> None:
        """Go on from a cursor, and forget what was read ahead."""


@final
class StepStage(Stage):
    """Runs a step on each block from below."""

    def __init__(self, run: Callable[[Block], Block], parent: Stage) -> None:
        self._run = run
        self._parent = parent
        self._skip = Skip()

    def pull(self) -> Outcome | None:
        outcome = self._parent.pull()
        if outcome is None or not len(outcome.block):
            return outcome
        made = attempt(self._run, outcome.block).followed_by(outcome)
        return Outcome(self._skip.drop(made.block), made.error)

    def seek(self, cursor: Cursor) -> None:
        self._skip = Skip(cursor)
        self._parent.seek(cursor)


@final
class Skip:
    """Drops what lies before a cursor: pieces of a flat map that were already given."""

    def __init__(self, cursor: Cursor | None = None) -> None:
        self._cursor = cursor

    def drop(self, block: Block) -> Block:
        """Give the block from the cursor on."""
        if self._cursor is None or not len(block):
            return block
        passed = block.track.num_until(self._cursor)
        if passed < len(block):
            self._cursor = None
        return block[passed:]
