"""Read a file from front to back."""

from collections.abc import Iterator
from typing import Any, final

from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import StatefulStage
from gristmill.plan import Records, RecordStreamNode


@final
class RecordStreamStage(StatefulStage):
    """Gives what the stream gives; its state is the place there."""

    def __init__(self, node: RecordStreamNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._stream = node.stream
        self._place: Any = node.stream.start
        self._records: Iterator[Records] | None = None

    def first_state(self) -> Any:
        return self._stream.start

    def restore(self, state: Any) -> None:
        self._place = state
        self._records = None

    def pull(self) -> Outcome | None:
        if self._records is None:
            self._records = self._stream.read_from(self._place)
        try:
            rows, place_after = next(self._records)
        except StopIteration:
            return None
        except Exception as error:
            self._records = None  # who mends the file goes on from here
            return self.give([], lambda _: self._place, error)
        self._place = place_after(len(rows))
        return self.give(list(rows), place_after)
