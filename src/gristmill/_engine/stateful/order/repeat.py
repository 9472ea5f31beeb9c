"""Repeat a stream."""

from typing import Any, final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import StatefulStage
from gristmill._plan.nodes.stream import RepeatStreamNode


@final
class RepeatStage(StatefulStage):
    """Restarts the parent at its end. The state is the cursor of the parent and the epoch."""

    def __init__(self, node: RepeatStreamNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._buffer = self._inputs[0]
        self._epoch = 0
        self._is_empty = True

    def first_state(self) -> Any:
        return [self._buffer.stage.start, 0]

    def restore(self, state: Any) -> None:
        below, self._epoch = state
        self._is_empty = False  # this epoch may be at its end, but not the stream
        self._buffer.seek(below)

    def pull(self) -> BlockResult | None:
        while not self._buffer.fill():
            if self._buffer.error is not None:
                return self.emit([], lambda _: None, self._buffer.error)
            # Without the first condition, an empty stream would be repeated indefinitely.
            if self._is_empty or self._epoch + 1 == self._node.num_epochs:
                return None
            self._epoch += 1
            self._is_empty = True
            self._buffer.seek(self._buffer.stage.start)
        self._is_empty = False
        mark, epoch = self._buffer.mark(), self._epoch
        rows = self._buffer.take(self._buffer.count)
        return self.emit(rows, lambda count: [mark.after(count), epoch])
