"""Bookmarks: positions of a stream at some of its steps, added when its iterators reach them."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, final

from gristmill._checkpoint.state import Position
from gristmill._plan.steps_of_records import no_element_at
from gristmill.types import Cursor

NUM_BOOKMARKS = 64
"""How many positions a loader or dataset keeps by default; one takes about a kilobyte."""

_MIN_DISTANCE = 16
"""The smallest number of steps between two bookmarks."""


@final
class StepBookmarks:
    """Positions of one stream, roughly evenly spaced. Threads may share them."""

    def __init__(self, max_count: int = NUM_BOOKMARKS) -> None:
        self.max_count = max_count
        self._positions: dict[int, Position] = {}
        self._distance = _MIN_DISTANCE
        self._of_shards: dict[tuple[int, int], StepBookmarks] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["StepBookmarks"], tuple[int]]:
        return StepBookmarks, (self.max_count,)  # a loader in another process makes its own

    def __len__(self) -> int:
        return len(self._positions)

    def empty(self) -> "StepBookmarks":
        """Return bookmarks of another stream: none yet."""
        return StepBookmarks(self.max_count)

    def of_shard(self, shard: tuple[int, int]) -> "StepBookmarks":
        """Return the bookmarks of another shard of the stream."""
        with self._lock:
            return self._of_shards.setdefault(shard, self.empty())

    def has_shifted(self, step: int, cursor_at: Callable[[int], Cursor]) -> bool:
        """Return whether it was found that fewer elements come before a step than expected.

        Args:
            step: The step.
            cursor_at: Returns the cursor before a step if no element before it is absent.
        """
        with self._lock:
            known = sorted(self._positions)
            nearest = next((found for found in known if found >= step), max(known, default=0))
            position = self._positions.get(nearest)
        return position is not None and tuple(position.cursor) != cursor_at(nearest)

    def counter(self, step: int = 0) -> Callable[[Callable[[], Position], int], None]:
        """Return a function to call before each block from a step on, which adds bookmarks.

        It is called with a function that returns the position before the block, and the number of
        elements in the block.
        """
        next_step, next_kept = step, step + 1

        def count(find_position: Callable[[], Position], num_elements: int) -> None:
            nonlocal next_step, next_kept
            if next_step >= next_kept and self.max_count:
                self._add(next_step, find_position())
                next_kept = next_step + self._distance
            next_step += num_elements

        return count

    def seek(self, iterator: Iterator[Any], step: int) -> None:
        """Move an iterator of a loader or dataset, which is at its start, to a step.

        Raises:
            IndexError: The stream ends before that step.
        """
        private: Any = iterator
        if private._seek_step(step):  # noqa: SLF001 - in constant time, for this class
            return
        with self._lock:
            start = max((found for found in self._positions if found <= step), default=0)
            position = self._positions.get(start)
        if position is not None:
            private._seek_bookmark(position, self.counter(start))  # noqa: SLF001 - for this class
        for number in range(start, step):
            try:
                next(iterator)
            except StopIteration:
                raise no_element_at(step, number) from None

    def _add(self, step: int, position: Position) -> None:
        with self._lock:
            self._positions[step] = position
            while len(self._positions) > self.max_count:
                self._distance *= 2
                self._positions = dict(self._spaced())

    def _spaced(self) -> Iterator[tuple[int, Position]]:
        """Yield the positions that are far enough from the one before."""
        last = 0
        for step in sorted(self._positions):
            if step - last >= self._distance:
                yield step, self._positions[step]
                last = step
