"""Shuffle a stream within windows."""

from typing import Any, final

import numpy as np

from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import StatefulStage
from gristmill.execute._track import Cursor
from gristmill.order import shuffled
from gristmill.plan import WindowShuffleStreamNode
from gristmill.types import Element

PART_ELEMENTS = 4096
"""A large window is given in parts: who runs ahead then holds a few parts, not a few windows."""

_SEEDS = 2**32


@final
class WindowShuffleStage(StatefulStage):
    """Gathers a window, and gives its elements in another order, keyed by the window's number.

    The state is the cursor where the window begins, its number, and how many of it were given; if
    any were, how many it has, and the cursor where it ends. Going on from there reads the window
    once more.
    """

    def __init__(
        self, node: WindowShuffleStreamNode, parents: list[Stage], *, num_flat_maps: int
    ) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._intake = self._intakes[0]
        self._number = 0
        self._window: _Window | None = None
        self._place = 0

    def first_state(self) -> Any:
        return [self._intake.stage.start, 0, 0]

    def restore(self, state: Any) -> None:
        below, self._number, self._place, *_ = state
        self._window = None
        self._intake.seek(below)

    def pull(self) -> Outcome | None:
        if self._window is None:
            start = self._intake.mark().after()
            rows = self._gather()
            if self._intake.error is not None and len(rows) < self._node.window:
                return self.give([], lambda _: None, self._intake.error)
            if not rows:
                return None
            self._window = _Window(
                rows, self._node.seed, self._number, start=start, end=self._intake.mark().after()
            )
            self._number += 1
        window, first = self._window, self._place
        part = window.rows[first : first + PART_ELEMENTS]
        self._place = first + len(part)
        if self._place >= len(window.rows):
            self._window, self._place = None, 0
        return self.give(part, lambda count: window.state(first + count))

    def _gather(self) -> list[Element]:
        """Take a window, or what is left."""
        rows: list[Element] = []
        while len(rows) < self._node.window and self._intake.fill():
            rows += self._intake.take(min(self._node.window - len(rows), self._intake.count))
        return rows


@final
class _Window:
    """The elements of a window, in their new order, and where they come from."""

    def __init__(
        self, rows: list[Element], seed: int, number: int, *, start: Cursor, end: Cursor
    ) -> None:
        count = len(rows)
        # From the last to the first, as Grain gives them.
        order = shuffled(np.arange(count)[::-1], num_records=count, seed=(seed + number) % _SEEDS)
        self.rows = list(map(rows.__getitem__, order.tolist()))
        self._number = number
        self._start = start
        self._end = end

    def state(self, count: int) -> Any:
        """Give the state after so many of them."""
        if count >= len(self.rows):
            return [self._end, self._number + 1, 0]
        if not count:
            return [self._start, self._number, 0]
        return [self._start, self._number, count, len(self.rows), self._end]
