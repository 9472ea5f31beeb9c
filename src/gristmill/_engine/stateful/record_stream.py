"""Read a file sequentially."""

from collections.abc import Iterator
from typing import Any, final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import StatefulStage
from gristmill._plan.nodes.stream import Records, RecordStreamNode


@final
class RecordStreamStage(StatefulStage):
    """Emits the records of a file. The state is the position in it."""

    def __init__(self, node: RecordStreamNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._note = f"In {node.label}, added at {node.site}."
        self._stream = node.stream
        self._position: Any = node.stream.start
        self._records: Iterator[Records] | None = None

    def first_state(self) -> Any:
        return self._stream.start

    def restore(self, state: Any) -> None:
        self._position = state
        self._records = None

    def pull(self) -> BlockResult | None:
        try:
            if self._records is None:
                self._records = self._stream.read_from(self._position)
            rows, position_after = next(self._records)
        except StopIteration:
            return None
        except (Exception, SystemExit) as error:
            add_note_once(error, self._note)
            self._records = None  # after a repair of the file, reading continues here
            return self.emit([], lambda _: self._position, error)
        self._position = position_after(len(rows))
        return self.emit(list(rows), position_after)
