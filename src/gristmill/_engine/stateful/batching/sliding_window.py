"""Batches of consecutive elements that may overlap."""

from typing import Any, final

from gristmill._data.batching.stack import stack
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import Mark, StatefulStage
from gristmill._plan.nodes.stream_steps import SlidingWindowNode
from gristmill.types import Element

MAX_BLOCK_WINDOWS = 64
"""Windows that overlap need more memory than their elements, so few are made in advance."""


@final
class SlidingWindowStage(StatefulStage):
    """Emits a window of `size` elements, and continues `stride` elements after its start.

    The state is the cursor before the next window, the number of elements to skip before it, and
    the number of elements from that cursor on that were part of an earlier window.
    """

    def __init__(
        self, node: SlidingWindowNode, parents: list[Stage], *, num_flat_maps: int
    ) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._buffer = self._inputs[0]
        self._elements: list[tuple[Mark, int, Element]] = []
        """The elements from the start of the next window on."""
        self._num_to_skip = 0
        self._num_used = 0
        self._last = (self._buffer.mark(), 0, 0, 0)
        """The state after the last window."""

    def first_state(self) -> Any:
        return [self._buffer.stage.start, 0, 0]

    def restore(self, state: Any) -> None:
        below, self._num_to_skip, self._num_used = state
        self._elements = []
        self._buffer.seek(below)
        self._last = (self._buffer.mark(), 0, self._num_to_skip, self._num_used)

    def pull(self) -> BlockResult | None:
        if len(self._elements) < self._node.size:
            if not self._buffer.fill():
                return self._finish()
            self._read()
        return self._emit_windows()

    def _read(self) -> None:
        """Take the buffered elements that are part of a window."""
        mark = self._buffer.mark()
        read = self._buffer.take(self._buffer.count)
        skipped = min(self._num_to_skip, len(read))
        self._num_to_skip -= skipped
        self._elements += [
            (mark, offset, element) for offset, element in enumerate(read) if offset >= skipped
        ]

    def _emit_windows(self) -> BlockResult:
        node = self._node
        rows: list[Element] = []
        states = [self._last]
        first, error = 0, None
        while first + node.size <= len(self._elements) and len(rows) < MAX_BLOCK_WINDOWS:
            error = self._add_window(first, first + node.size, rows)
            if error is not None:
                break
            states.append(self._state_after(first))
            first += node.stride
        if first and error is None:
            self._num_to_skip += max(0, first - len(self._elements))
            self._num_used = max(0, node.size - node.stride)
            del self._elements[:first]
            self._last = states[-1]
        return self.emit(rows, lambda count: _resolved(states[count]), error)

    def _finish(self) -> BlockResult | None:
        """Emit a smaller window, once, if there are elements that were in none."""
        before, error = self._last, self._buffer.error
        if error is not None:
            return self.emit([], lambda _: _resolved(before), error)
        count = len(self._elements)
        if self._node.drop_remainder or count <= self._num_used:
            return None
        rows: list[Element] = []
        error = self._add_window(0, count, rows)
        self._elements, self._num_used = [], 0
        states = [before, (self._buffer.mark(), 0, 0, 0)]
        self._last = states[-1]
        return self.emit(rows, lambda number: _resolved(states[number]), error)

    def _add_window(self, first: int, end: int, rows: list[Element]) -> BaseException | None:
        elements = [element for _, _, element in self._elements[first:end]]
        function = self._node.function
        try:
            rows.append(stack(elements) if function is None else function(elements))
        except Exception as error:
            add_note_once(error, f"In {self._node.label}, added at {self._node.site}.")
            return error
        return None

    def _state_after(self, first: int) -> tuple[Mark, int, int, int]:
        """Return the state after the window from the element `first` of those that are held.

        It must not depend on which elements were read after the window.
        """
        size, stride = self._node.size, self._node.stride
        if stride < size:
            mark, offset, _ = self._elements[first + stride]
            return mark, offset, 0, size - stride
        mark, offset, _ = self._elements[first + size - 1]
        return mark, offset + 1, stride - size, 0


def _resolved(state: tuple[Mark, int, int, int]) -> Any:
    mark, offset, num_to_skip, num_used = state
    return [mark.after(offset), num_to_skip, num_used]
