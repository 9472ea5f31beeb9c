"""Mix streams in proportions, fixed or by a schedule.

The order of the parents is computed for many outputs at once.
"""

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from gristmill._base.indices import as_indices
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import StatefulStage
from gristmill._plan.mixing import choose_run
from gristmill._plan.nodes.combine_streams import MixStreamNode
from gristmill._plan.scheduled_mixing import ScheduledMix
from gristmill.errors import StateError
from gristmill.types import Element, Indices

WINDOW_TURNS = 16_384
"""Number of outputs whose turns are computed at once."""

MAX_CACHED_TURNS = 65_536
"""Turns repeat after the sum of the proportions; up to this many are computed only once."""


@final
class Turns:
    """The parent of each of some consecutive outputs.

    >>> turns = Turns.chosen(*choose_run(range(6), (2, 1)))
    >>> turns.numbers.tolist(), turns.ranks.tolist()
    ([0, 0, 1, 0, 0, 1], [0, 1, 0, 2, 3, 1])
    """

    __slots__ = ("numbers", "order", "ranks")

    def __init__(self, numbers: Indices, ranks: Indices) -> None:
        self.numbers = numbers
        self.ranks = ranks
        """For each output, the number of earlier outputs here of the same parent."""
        self.order: list[int] = numbers.tolist()

    @staticmethod
    def chosen(numbers: Indices, within: Indices) -> "Turns":
        """Return the turns for the parent of each output, and the element's number there."""
        firsts = np.zeros(int(numbers.max(initial=0)) + 1, dtype=within.dtype)
        firsts[numbers[::-1]] = within[::-1]  # the first occurrence is written last
        return Turns(numbers, as_indices(within - firsts[numbers]))


@final
class Schedule:
    """Computes the turns of a mix, one window at a time."""

    def __init__(self, proportions: tuple[int, ...], schedule: ScheduledMix | None = None) -> None:
        common = math.gcd(*proportions)
        self._shares = tuple(share // common for share in proportions)
        self._schedule = schedule
        period = sum(self._shares)
        self._is_periodic = schedule is None and period <= MAX_CACHED_TURNS
        self.window = period * -(-WINDOW_TURNS // period) if self._is_periodic else WINDOW_TURNS
        """Number of outputs in a window."""
        self._period: Turns | None = None

    def turns(self, number: int) -> Turns:
        """Return the turns of a window."""
        if self._is_periodic:
            if self._period is None:
                self._period = self._between(0, self.window)
            return self._period
        return self._between(number * self.window, (number + 1) * self.window)

    def _between(self, start: int, stop: int) -> Turns:
        if self._schedule is not None:
            return Turns.chosen(*self._schedule.choose_run(range(start, stop)))
        return Turns.chosen(*choose_run(range(start, stop), self._shares))


@final
class MixStage(StatefulStage):
    """Takes an element from each parent in turn, and pulls a parent only if its buffer is empty.

    Between two pulls, all buffered elements are mixed at once, so that the cost depends on the
    number of elements, not of parents. The state is the number of outputs so far and the cursors of
    the parents: by name, if they have names.
    """

    def __init__(self, node: MixStreamNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._schedule = Schedule(node.proportions, node.schedule)
        self._seek_output(0)

    def first_state(self) -> Any:
        return self._state(0, [buffer.stage.start for buffer in self._inputs])

    def restore(self, state: Any) -> None:
        index, below = state
        names = self._node.names
        if names is None:
            if isinstance(below, dict):
                raise StateError(
                    "The state is one of a mapping of mixed datasets, and here they are in a list. "
                    "Mix the mapping again."
                )
            # A dataset that was added starts at its beginning; one that was removed is ignored.
            cursors: list[Any] = self._node.by_number(below)
        else:
            cursors = [below.get(name) for name in names]
        for buffer, cursor in zip(self._inputs, cursors, strict=True):
            buffer.seek(buffer.stage.start if cursor is None else cursor)
        self._seek_output(index)

    def pull(self) -> BlockResult | None:
        if self._offset == self._schedule.window:
            self._start_next_window()
        number = self._turns.order[self._offset]
        if not self._available[number] and not self._fill(number):
            error = self._inputs[number].error
            if error is None:
                return None
            node = self._node
            add_note_once(
                error,
                f"In {node.label}, added at {node.site}, from dataset {node.name_of(number)}.",
            )
            return self.emit([], lambda _: None, error)
        self._fill_upcoming()
        numbers = self._next_turns()
        first, marks, taken = self._index, tuple(self._marks), self._taken
        rows = self._take(numbers)

        def state_after(count: int) -> Any:
            counts = taken + _count_each(numbers[:count], len(marks))
            cursors = [mark.after(num) for mark, num in zip(marks, counts.tolist(), strict=True)]
            return self._state(first + count, cursors)

        return self.emit(rows, state_after)

    def _fill(self, number: int) -> int:
        """Buffer elements of a parent, and return their number."""
        buffer = self._inputs[number]
        count = buffer.fill()
        self._marks[number] = buffer.mark()
        self._taken = self._taken.copy()  # earlier states may still read it
        self._taken[number] = 0
        self._queues[number] = iter(buffer.take(count))
        self._available[number] = count
        return count

    def _fill_upcoming(self) -> None:
        """Buffer elements of all parents whose turn comes soon, up to one that has ended.

        Parents with the same share run out one right after the other.
        """
        if self._available.all():
            return
        soon = slice(self._offset, self._offset + 2 * len(self._inputs))
        for number in dict.fromkeys(self._turns.order[soon]):
            if not self._available[number] and not self._fill(number):
                break

    def _next_turns(self) -> Indices:
        """Return the turns up to one whose parent has no buffered element (never the first)."""
        turns = slice(self._offset, self._offset + int(self._available.sum()))
        numbers = self._turns.numbers[turns]
        is_short = self._turns.ranks[turns] >= (self._used + self._available)[numbers]
        return numbers[: int(is_short.argmax()) or None]

    def _take(self, numbers: Indices) -> list[Element]:
        order = self._turns.order[self._offset : self._offset + len(numbers)]
        counts = _count_each(numbers, len(self._inputs))
        self._offset += len(numbers)
        self._index += len(numbers)
        self._available = self._available - counts
        self._used = self._used + counts
        self._taken = self._taken + counts
        return list(map(next, map(self._queues.__getitem__, order)))

    def _seek_output(self, index: int) -> None:
        """Continue from an output, with empty buffers."""
        count = len(self._inputs)
        self._index = index
        self._window, self._offset = divmod(index, self._schedule.window)
        self._turns = self._schedule.turns(self._window)
        self._used = _count_each(self._turns.numbers[: self._offset], count)
        self._available = np.zeros(count, dtype=np.int64)
        self._taken = np.zeros(count, dtype=np.int64)
        self._marks = [buffer.mark() for buffer in self._inputs]
        self._queues: list[Iterator[Element]] = [iter(()) for _ in self._inputs]

    def _start_next_window(self) -> None:
        """Start the next window."""
        self._window += 1
        self._offset = 0
        self._turns = self._schedule.turns(self._window)
        self._used = np.zeros(len(self._inputs), dtype=np.int64)

    def _state(self, index: int, cursors: list[Any]) -> Any:
        names = self._node.names
        return [index, cursors if names is None else dict(zip(names, cursors, strict=True))]


def _count_each(numbers: Indices, count: int) -> Indices:
    return np.bincount(numbers, minlength=count)
