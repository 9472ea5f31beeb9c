"""Concatenate streams: those that a user lists, or those that a resharded run consists of."""

from typing import Any, final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import InputBuffer, StatefulStage
from gristmill._plan.nodes.combine_streams import ChainNode, ConcatStreamsNode
from gristmill.types import Cursor


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


@final
class ConcatStreamsStage(StatefulStage):
    """Emits all of one parent, then all of the next.

    The state is the number of the parent, the cursors at which those before it ended, and its own.
    """

    def __init__(
        self, node: ConcatStreamsNode, parents: list[Stage], *, num_flat_maps: int
    ) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        del node
        self._ended: list[Cursor] = []

    def first_state(self) -> Any:
        return [0, [self._inputs[0].stage.start]]

    def restore(self, state: Any) -> None:
        number, cursors = int(state[0]), state[1]
        self._ended = [tuple(cursor) for cursor in cursors[:number]]
        self._inputs[number].seek(cursors[number])

    def pull(self) -> BlockResult | None:
        while True:
            ended = self._ended
            buffer = self._inputs[len(ended)]
            if buffer.fill():
                return self._emit_block(ended, buffer)
            if buffer.error is not None:
                return self.emit([], lambda _: None, buffer.error)
            if len(ended) + 1 == len(self._inputs):
                return None
            self._ended = [*ended, buffer.mark().after()]
            following = self._inputs[len(ended) + 1]
            following.seek(following.stage.start)

    def _emit_block(self, ended: list[Cursor], buffer: InputBuffer) -> BlockResult:
        mark = buffer.mark()
        rows = buffer.take(buffer.count)
        return self.emit(rows, lambda count: [len(ended), [*ended, mark.after(count)]])
