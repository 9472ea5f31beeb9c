"""Leave out the first elements of a stream."""

from typing import Any, final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import StatefulStage
from gristmill._plan.nodes.stream_steps import SkipNode


@final
class SkipStage(StatefulStage):
    """Emits all but the first `count` elements. The state has the parent's cursor, and a count."""

    def __init__(self, node: SkipNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._buffer = self._inputs[0]
        self._num_skipped = 0

    def first_state(self) -> Any:
        return [self._buffer.stage.start, 0]

    def restore(self, state: Any) -> None:
        below, self._num_skipped = state
        self._buffer.seek(below)

    def pull(self) -> BlockResult | None:
        while self._num_skipped < self._node.count and self._buffer.fill():
            missing = self._node.count - self._num_skipped
            self._num_skipped += len(self._buffer.take(min(missing, self._buffer.count)))
        mark, num_skipped = self._buffer.mark(), self._num_skipped
        if not self._buffer.fill():
            error = self._buffer.error
            if error is None:
                return None
            return self.emit([], lambda _: [mark.after(), num_skipped], error)
        mark = self._buffer.mark()
        rows = self._buffer.take(self._buffer.count)
        return self.emit(rows, lambda count: [mark.after(count), num_skipped])
