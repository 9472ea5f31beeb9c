"""Map the elements of a stream with their number in it."""

from functools import partial
from typing import Any, final

from gristmill._engine.access.context import ReadContext
from gristmill._engine.access.filter import run_on_present
from gristmill._engine.access.map import map_with_index_step, seeded_map_step
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.lineage import lineage_of
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import StatefulStage
from gristmill._plan.nodes.stream import CountedMapNode


@final
class CountedMapStage(StatefulStage):
    """Calls a function with each element and its number, or a generator derived from the number.

    The state is the cursor of the parent and the count so far.
    """

    def __init__(self, node: CountedMapNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        open_step = map_with_index_step if node.seed is None else seeded_map_step
        self._run = partial(run_on_present, open_step(node, ReadContext(by_index=True)))
        self._node = node
        self._buffer = self._inputs[0]
        self._count = node.first

    def first_state(self) -> Any:
        return [self._buffer.stage.start, self._node.first]

    def restore(self, state: Any) -> None:
        below, self._count = state
        self._buffer.seek(below)

    def pull(self) -> BlockResult | None:
        if not self._buffer.fill():
            error = self._buffer.error
            return None if error is None else self.emit([], lambda _: None, error)
        mark, first = self._buffer.mark(), self._count
        elements = self._buffer.take(self._buffer.count)
        block = Block(elements, lineage_of(range(first, first + len(elements))))
        result = self._run(block)
        rows = result.block.rows()
        self._count += len(rows)
        return self.emit(rows, lambda count: [mark.after(count), first + count], result.error)
