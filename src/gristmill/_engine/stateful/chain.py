"""Concatenate streams."""

from typing import Any, final

from gristmill._engine.blocks.block_result import BlockResult
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import InputBuffer, StatefulStage
from gristmill._plan.nodes.combine_streams import ChainNode


@final
class ChainStage(StatefulStage):
    """Emits all of one parent, then all of the next. The state is the parent and its cursor.

    A parent starts at the cursor in the node, if there is one.
    """

    def __init__(self, node: ChainNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._starts = [
            parent.start if start is None else start
            for parent, start in zip(parents, node.starts, strict=True)
        ]
        self._begin(0)

    def first_state(self) -> Any:
        return [0, self._starts[0] if self._starts else None]

    def restore(self, state: Any) -> None:
        self._number = int(state[0])
        if self._number < len(self._inputs):
            self._inputs[self._number].seek(state[1])

    def pull(self) -> BlockResult | None:
        while self._number < len(self._inputs):
            number, buffer = self._number, self._inputs[self._number]
            if buffer.fill():
                return self._emit_block(number, buffer)
            if buffer.error is not None:
                return self.emit([], lambda _: None, buffer.error)
            self._begin(number + 1)
        return None

    def _emit_block(self, number: int, buffer: InputBuffer) -> BlockResult:
        mark = buffer.mark()
        rows = buffer.take(buffer.count)
        return self.emit(rows, lambda count: [number, mark.after(count)])

    def _begin(self, number: int) -> None:
        self._number = number
        if number < len(self._inputs):
            self._inputs[number].seek(self._starts[number])
