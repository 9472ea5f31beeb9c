"""Shuffle a stream within windows."""

from typing import Any, final

import numpy as np

from gristmill._data.sampling.shuffle import shuffled
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import StatefulStage
from gristmill._plan.nodes.stream import WindowShuffleStreamNode
from gristmill.types import Cursor, Element

MAX_BLOCK_ELEMENTS = 4096
"""A large window is emitted in several blocks, so that prefetching holds blocks, not windows."""

_SEEDS = 2**32


@final
class WindowShuffleStage(StatefulStage):
    """Collects a window, and emits its elements in an order keyed by the number of the window.

    The state is the cursor before the window, its number, and how many of its elements were
    emitted; if there are any, also the size of the window and the cursor after it. Restoring reads
    the window again.
    """

    def __init__(
        self, node: WindowShuffleStreamNode, parents: list[Stage], *, num_flat_maps: int
    ) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._buffer = self._inputs[0]
        self._number = 0
        self._window: _Window | None = None
        self._offset = 0

    def first_state(self) -> Any:
        return [self._buffer.stage.start, 0, 0]

    def restore(self, state: Any) -> None:
        below, self._number, self._offset, *_ = state
        self._window = None
        self._buffer.seek(below)

    def pull(self) -> BlockResult | None:
        if self._window is None:
            start = self._buffer.mark().after()
            rows = self._gather()
            if self._buffer.error is not None and len(rows) < self._node.window:
                return self.emit([], lambda _: None, self._buffer.error)
            if not rows:
                return None
            self._window = _Window(
                rows, self._node.seed, self._number, start=start, end=self._buffer.mark().after()
            )
            self._number += 1
        window, first = self._window, self._offset
        chunk = window.rows[first : first + MAX_BLOCK_ELEMENTS]
        self._offset = first + len(chunk)
        if self._offset >= len(window.rows):
            self._window, self._offset = None, 0
        return self.emit(chunk, lambda count: window.state(first + count))

    def _gather(self) -> list[Element]:
        """Return the elements of a window, or the remaining ones."""
        rows: list[Element] = []
        while len(rows) < self._node.window and self._buffer.fill():
            rows += self._buffer.take(min(self._node.window - len(rows), self._buffer.count))
        return rows


@final
class _Window:
    """The elements of a window in their new order, and the cursors around it."""

    def __init__(
        self, rows: list[Element], seed: int, number: int, *, start: Cursor, end: Cursor
    ) -> None:
        count = len(rows)
        # From the last to the first, as in Grain.
        order = shuffled(np.arange(count)[::-1], num_records=count, seed=(seed + number) % _SEEDS)
        self.rows = list(map(rows.__getitem__, order.tolist()))
        self._number = number
        self._start = start
        self._end = end

    def state(self, count: int) -> Any:
        """Return the state after `count` elements."""
        if count >= len(self.rows):
            return [self._end, self._number + 1, 0]
        if not count:
            return [self._start, self._number, 0]
        return [self._start, self._number, count, len(self.rows), self._end]
