"""Base classes of stages that keep state from one element to the next.

Such a stage takes elements from its parents through `InputBuffer`s. It emits its own elements with
a function that computes, on request, the state after any number of them. A state consists of
cursors of the parents and a few numbers. It can be written as JSON, and contains no element.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.lineage import DenseLineage, Lineage
from gristmill._engine.stages.base import Stage
from gristmill.types import Cursor, Element


@final
class Mark:
    """A position in an input buffer that stays valid when the buffer advances."""

    __slots__ = ("_before", "_lineage", "_taken")

    def __init__(self, before: Cursor, lineage: Lineage | None, taken: int) -> None:
        self._before = before
        self._lineage = lineage
        self._taken = taken

    def after(self, count: int = 0) -> Cursor:
        """Return the cursor after `count` more of the buffered elements."""
        row = self._taken + count - 1
        return self._before if row < 0 or self._lineage is None else self._lineage.after(row)


@final
class InputBuffer:
    """Buffers elements of a parent stage."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.error: BaseException | None = None
        """The error after the buffered elements, if there is one."""
        self.has_ended = False
        """Whether the stream ends after the buffered elements."""
        self._before = stage.start
        self._lineage: Lineage | None = None
        self._rows: list[Element] = []
        self._taken = 0

    @property
    def count(self) -> int:
        """Number of buffered elements."""
        return len(self._rows) - self._taken

    def fill(self) -> int:
        """Buffer at least one element, and return their number: 0 at the end or before an error."""
        while not (self.count or self.has_ended or self.error):
            result = self.stage.pull()
            if result is None:
                self.has_ended = True
            else:
                self._before = self.mark().after()
                self._rows = result.block.rows()
                self._lineage = result.block.lineage if self._rows else None
                self._taken = 0
                self.error = result.error
        return self.count

    def peek(self) -> list[Element]:
        """Return the buffered elements."""
        return self._rows[self._taken :]

    def take(self, count: int) -> list[Element]:
        """Remove and return some of the buffered elements."""
        rows = self._rows[self._taken : self._taken + count]
        self._taken += count
        return rows

    def mark(self) -> Mark:
        """Return the position before the next element."""
        return Mark(self._before, self._lineage, self._taken)

    def seek(self, cursor: Cursor) -> None:
        """Continue from a cursor."""
        self.stage.seek(cursor)
        self._before, self._lineage, self._rows, self._taken = tuple(cursor), None, [], 0
        self.error, self.has_ended = None, False


class StatefulStage(Stage):
    """A stage with its own state and any number of parents."""

    def __init__(self, parents: Sequence[Stage], *, num_flat_maps: int) -> None:
        self._inputs = [InputBuffer(parent) for parent in parents]
        self._num_flat_maps = num_flat_maps
        self._num_emitted = 0

    @abstractmethod
    def first_state(self) -> Any:
        """Return the initial state."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Continue from a state, in which JSON may have replaced tuples by lists."""

    def emit(
        self,
        rows: list[Element],
        state_after: Callable[[int], Any],
        error: BaseException | None = None,
    ) -> BlockResult:
        """Return a block of elements; `state_after(n)` is the state after the first n of them."""
        first = self._num_emitted
        self._num_emitted += len(rows)
        lineage = DenseLineage.of_records(
            range(first, self._num_emitted),
            num_flat_maps=self._num_flat_maps,
            states=lambda number: state_after(number - first),
        )
        return BlockResult(Block(rows, lineage), error, len(rows))

    @property
    def start(self) -> Cursor:
        return (self.first_state(), *(0,) * self._num_flat_maps)

    def seek(self, cursor: Cursor) -> Cursor:
        state, *num_outputs = cursor
        self._num_emitted = 0
        self.restore(state)
        return (0, *num_outputs)

    @property
    def needs_thread(self) -> bool:
        return any(buffer.stage.needs_thread for buffer in self._inputs)

    def interrupt(self) -> None:
        for buffer in self._inputs:
            buffer.stage.interrupt()

    def close(self) -> None:
        for buffer in self._inputs:
            buffer.stage.close()

    def dispose(self) -> None:
        for buffer in self._inputs:
            buffer.stage.dispose()
