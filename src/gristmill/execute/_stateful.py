"""Stages that keep something from one element to the next, and tell their state before any.

Such a stage takes elements from the ones below through an `Intake`, and gives its own with a
function that tells, when asked, what its state is after so many of them. A state is made of
cursors of what is below and a few numbers: it can be written as JSON, and holds no element.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

from gristmill.execute._block import Block
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._track import Cursor, DenseTrack, Track
from gristmill.types import Element


@final
class Mark:
    """A place among the elements at hand of an intake, which stays valid when it goes on."""

    __slots__ = ("_before", "_taken", "_track")

    def __init__(self, before: Cursor, track: Track | None, taken: int) -> None:
        self._before = before
        self._track = track
        self._taken = taken

    def after(self, count: int = 0) -> Cursor:
        """Give the cursor after `count` more elements of those at hand."""
        row = self._taken + count - 1
        return self._before if row < 0 or self._track is None else self._track.after(row)


@final
class Intake:
    """The elements that come from a stage, a few at hand."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.error: BaseException | None = None
        """What stands after the elements at hand, if that is an error."""
        self.has_ended = False
        """Whether nothing comes after the elements at hand."""
        self._before = stage.start
        self._track: Track | None = None
        self._rows: list[Element] = []
        self._taken = 0

    @property
    def count(self) -> int:
        """How many elements are at hand."""
        return len(self._rows) - self._taken

    def fill(self) -> int:
        """Have an element at hand, and give how many there are: 0 at the end or an error."""
        while not (self.count or self.has_ended or self.error):
            outcome = self.stage.pull()
            if outcome is None:
                self.has_ended = True
            else:
                self._before = self.mark().after()
                self._rows = outcome.block.rows()
                self._track = outcome.block.track if self._rows else None
                self._taken = 0
                self.error = outcome.error
        return self.count

    def peek(self) -> list[Element]:
        """Give the elements at hand."""
        return self._rows[self._taken :]

    def take(self, count: int) -> list[Element]:
        """Take some of the elements at hand."""
        rows = self._rows[self._taken : self._taken + count]
        self._taken += count
        return rows

    def mark(self) -> Mark:
        """Give the place before the next element."""
        return Mark(self._before, self._track, self._taken)

    def seek(self, cursor: Cursor) -> None:
        """Go on from a cursor."""
        self.stage.seek(cursor)
        self._before, self._track, self._rows, self._taken = tuple(cursor), None, [], 0
        self.error, self.has_ended = None, False


class StatefulStage(Stage):
    """A stage with a state of its own, over any number of others."""

    def __init__(self, parents: Sequence[Stage], *, num_flat_maps: int) -> None:
        self._intakes = [Intake(parent) for parent in parents]
        self._num_flat_maps = num_flat_maps
        self._num_given = 0

    @abstractmethod
    def first_state(self) -> Any:
        """Give the state it begins in."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Go on from a state, which may have been JSON meanwhile: lists for tuples."""

    def give(
        self,
        rows: list[Element],
        state_after: Callable[[int], Any],
        error: BaseException | None = None,
    ) -> Outcome:
        """Give elements, and a function that tells the state after the first so many of them."""
        first = self._num_given
        self._num_given += len(rows)
        track = DenseTrack.of_records(
            range(first, self._num_given),
            num_flat_maps=self._num_flat_maps,
            states=lambda number: state_after(number - first),
        )
        return Outcome(Block(rows, track), error, len(rows))

    @property
    def start(self) -> Cursor:
        return (self.first_state(), *(0,) * self._num_flat_maps)

    def seek(self, cursor: Cursor) -> Cursor:
        state, *pieces = cursor
        self._num_given = 0
        self.restore(state)
        return (0, *pieces)

    @property
    def needs_thread(self) -> bool:
        return any(intake.stage.needs_thread for intake in self._intakes)

    def interrupt(self) -> None:
        for intake in self._intakes:
            intake.stage.interrupt()

    def close(self) -> None:
        for intake in self._intakes:
            intake.stage.close()

    def dispose(self) -> None:
        for intake in self._intakes:
            intake.stage.dispose()
