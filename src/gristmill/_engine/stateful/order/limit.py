"""End a stream after a number of elements."""

from typing import Any, final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import StatefulStage
from gristmill._plan.nodes.stream import LimitNode


@final
class LimitStage(StatefulStage):
    """Emits at most `count` elements. The state is the parent's cursor and the count so far."""

    def __init__(self, node: LimitNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._buffer = self._inputs[0]
        self._count = 0

    def first_state(self) -> Any:
        return [self._buffer.stage.start, 0]

    def restore(self, state: Any) -> None:
        below, self._count = state
        self._buffer.seek(below)

    def pull(self) -> BlockResult | None:
        num_left = self._node.count - self._count
        if num_left <= 0:  # without reading the next element
            return None
        if not self._buffer.fill():
            error = self._buffer.error
            return None if error is None else self.emit([], lambda _: None, error)
        mark, first = self._buffer.mark(), self._count
        rows = self._buffer.take(min(num_left, self._buffer.count))
        self._count += len(rows)
        return self.emit(rows, lambda count: [mark.after(count), first + count])
