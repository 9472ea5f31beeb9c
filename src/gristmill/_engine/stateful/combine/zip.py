"""Zip streams."""

from typing import Any, final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import StatefulStage
from gristmill._plan.nodes.combine_streams import ZipStreamNode
from gristmill.errors import PlanError, StateError


@final
class ZipStage(StatefulStage):
    """Combines one element of each parent to a tuple. The state is the cursors of the parents."""

    def __init__(self, node: ZipStreamNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node

    def first_state(self) -> Any:
        return [buffer.stage.start for buffer in self._inputs]

    def restore(self, state: Any) -> None:
        if len(state) != len(self._inputs):
            raise StateError(
                f"The state is of {len(state)} zipped datasets, these are {len(self._inputs)}."
            )
        for buffer, cursor in zip(self._inputs, state, strict=True):
            buffer.seek(cursor)

    def pull(self) -> BlockResult | None:
        for number, buffer in enumerate(self._inputs):
            if not buffer.fill():
                error = buffer.error or self._uneven(number)
                return None if error is None else self.emit([], lambda _: None, error)
        marks = tuple(buffer.mark() for buffer in self._inputs)
        count = min(buffer.count for buffer in self._inputs)
        rows = list(zip(*(buffer.take(count) for buffer in self._inputs), strict=True))
        return self.emit(rows, lambda count: [mark.after(count) for mark in marks])

    def _uneven(self, number: int) -> BaseException | None:
        """Return the error if the end of a parent is not the end of all of them."""
        if not self._node.strict:
            return None
        if number:
            return self._error(number, "shorter")
        for other, buffer in enumerate(self._inputs[1:], start=1):
            if buffer.fill():
                return self._error(other, "longer")
            if buffer.error is not None:
                return buffer.error
        return None

    def _error(self, number: int, how: str) -> PlanError:
        others = "argument 1" if number == 1 else f"arguments 1-{number}"
        error = PlanError(
            f"ZipIterDataset argument {number + 1} is {how} than {others}. Make them equally long, "
            "or pass `strict=False` to end with the shortest."
        )
        add_note_once(error, f"In {self._node.label}, added at {self._node.site}.")
        return error
