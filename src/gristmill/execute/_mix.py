"""Mix streams: whose turn it is, for many outputs at once, and elements from those at hand."""

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from gristmill.errors import StateError
from gristmill.execute._blame import add_note_once
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import StatefulStage
from gristmill.plan import MixStreamNode, choose_run
from gristmill.types import Element, Indices

WINDOW_TURNS = 16_384
"""For how many outputs the turns are found at once."""

MOST_KEPT_TURNS = 65_536
"""Turns repeat after the sum of the proportions: up to this many are found once and for all."""


@final
class Turns:
    """Whose turn it is, in some consecutive outputs.

    >>> turns = Turns.between(0, 6, (2, 1))
    >>> turns.numbers.tolist(), turns.ranks.tolist()
    ([0, 0, 1, 0, 0, 1], [0, 1, 0, 2, 3, 1])
    """

    __slots__ = ("numbers", "order", "ranks")

    def __init__(self, numbers: Indices, ranks: Indices) -> None:
        self.numbers = numbers
        self.ranks = ranks
        """How many turns of the same one came before, among these."""
        self.order: list[int] = numbers.tolist()

    @staticmethod
    def between(start: int, stop: int, proportions: tuple[int, ...]) -> "Turns":
        """Find the turns in a range of outputs."""
        numbers, within = choose_run(range(start, stop), proportions)
        firsts = np.zeros(len(proportions), dtype=np.int64)
        firsts[numbers[::-1]] = within[::-1]  # of those with the same number, the first comes last
        return Turns(numbers, within - firsts[numbers])


@final
class Schedule:
    """The turns of a mix, a window at a time."""

    def __init__(self, proportions: tuple[int, ...]) -> None:
        common = math.gcd(*proportions)
        self._shares = tuple(share // common for share in proportions)
        period = sum(self._shares)
        self._is_kept = period <= MOST_KEPT_TURNS
        self.window = period * -(-WINDOW_TURNS // period) if self._is_kept else WINDOW_TURNS
        """How many outputs a window has."""
        self._kept: Turns | None = None

    def turns(self, number: int) -> Turns:
        """Give the turns of a window."""
        if self._is_kept:
            if self._kept is None:
                self._kept = Turns.between(0, self.window, self._shares)
            return self._kept
        return Turns.between(number * self.window, (number + 1) * self.window, self._shares)


@final
class MixStage(StatefulStage):
    """Takes from each parent as its turn comes, and pulls one only when it has nothing at hand.

    Between two pulls, what all of them have at hand is mixed at once: the cost is that of the
    elements, however many parents there are. The state is how many came so far, and the cursors
    of the parents: by name, where they have names.
    """

    def __init__(self, node: MixStreamNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._schedule = Schedule(node.proportions)
        self._go_to(0)

    def first_state(self) -> Any:
        return self._state(0, [intake.stage.start for intake in self._intakes])

    def restore(self, state: Any) -> None:
        index, below = state
        names = self._node.names
        if names is None:
            cursors: list[Any] = [] if isinstance(below, dict) else list(below)
            if len(cursors) != len(self._intakes):
                raise StateError(
                    f"The state is not one of {len(self._intakes)} mixed datasets in a list. Mix a "
                    "mapping of datasets to change them between runs."
                )
        else:
            cursors = [below.get(name) for name in names]
        for intake, cursor in zip(self._intakes, cursors, strict=True):
            intake.seek(intake.stage.start if cursor is None else cursor)
        self._go_to(index)

    def pull(self) -> Outcome | None:
        if self._place == self._schedule.window:
            self._go_on()
        number = self._turns.order[self._place]
        if not self._at_hand[number] and not self._fill(number):
            error = self._intakes[number].error
            if error is None:
                return None
            node = self._node
            add_note_once(
                error,
                f"In {node.label}, added at {node.site}, from dataset {node.name_of(number)}.",
            )
            return self.give([], lambda _: None, error)
        self._fill_others()
        numbers = self._next_turns()
        first, marks, taken = self._index, tuple(self._marks), self._taken
        rows = self._take(numbers)

        def state_after(count: int) -> Any:
            counts = taken + _tally(numbers[:count], len(marks))
            cursors = [mark.after(num) for mark, num in zip(marks, counts.tolist(), strict=True)]
            return self._state(first + count, cursors)

        return self.give(rows, state_after)

    def _fill(self, number: int) -> int:
        """Have elements of a parent at hand, and give how many."""
        intake = self._intakes[number]
        count = intake.fill()
        self._marks[number] = intake.mark()
        self._taken = self._taken.copy()  # states of before may still look at it
        self._taken[number] = 0
        self._queues[number] = iter(intake.take(count))
        self._at_hand[number] = count
        return count

    def _fill_others(self) -> None:
        """Have elements of all parents whose turn comes soon, up to one that has none.

        Those with the same share run out one right after the other.
        """
        if self._at_hand.all():
            return
        soon = slice(self._place, self._place + 2 * len(self._intakes))
        for number in dict.fromkeys(self._turns.order[soon]):
            if not self._at_hand[number] and not self._fill(number):
                break

    def _next_turns(self) -> Indices:
        """Give the turns up to where a parent has no element at hand, which is not the first."""
        turns = slice(self._place, self._place + int(self._at_hand.sum()))
        numbers = self._turns.numbers[turns]
        is_short = self._turns.ranks[turns] >= (self._used + self._at_hand)[numbers]
        return numbers[: int(is_short.argmax()) or None]

    def _take(self, numbers: Indices) -> list[Element]:
        order = self._turns.order[self._place : self._place + len(numbers)]
        counts = _tally(numbers, len(self._intakes))
        self._place += len(numbers)
        self._index += len(numbers)
        self._at_hand = self._at_hand - counts
        self._used = self._used + counts
        self._taken = self._taken + counts
        return list(map(next, map(self._queues.__getitem__, order)))

    def _go_to(self, index: int) -> None:
        """Begin at an output, with nothing at hand."""
        count = len(self._intakes)
        self._index = index
        self._window, self._place = divmod(index, self._schedule.window)
        self._turns = self._schedule.turns(self._window)
        self._used = _tally(self._turns.numbers[: self._place], count)
        self._at_hand = np.zeros(count, dtype=np.int64)
        self._taken = np.zeros(count, dtype=np.int64)
        self._marks = [intake.mark() for intake in self._intakes]
        self._queues: list[Iterator[Element]] = [iter(()) for _ in self._intakes]

    def _go_on(self) -> None:
        """Begin the next window."""
        self._window += 1
        self._place = 0
        self._turns = self._schedule.turns(self._window)
        self._used = np.zeros(len(self._intakes), dtype=np.int64)

    def _state(self, index: int, cursors: list[Any]) -> Any:
        names = self._node.names
        return [index, cursors if names is None else dict(zip(names, cursors, strict=True))]


def _tally(numbers: Indices, count: int) -> Indices:
    return np.bincount(numbers, minlength=count)
