"""Run operations over an iterator of records, and pack records into batches."""

import time
from collections.abc import Iterator
from typing import Any, final

from gristmill._data.sampling.record import Record, RecordMetadata
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import InputBuffer, StatefulStage
from gristmill._engine.stateful.packing.pack_and_batch import pack_and_batch
from gristmill._engine.tuning.policy import DEFAULT_POLICY
from gristmill._plan.nodes.record_operations import OperationsNode, PackBatchesNode
from gristmill.types import Cursor, Element


@final
class OperationsStage(StatefulStage):
    """Yields what the user's operations make of the records starting at a cursor.

    The state is that cursor and the number of elements since. To resume, the operations run again
    from the cursor, and as many elements are dropped.
    """

    def __init__(self, node: OperationsNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._begin(self._inputs[0].stage.start, 0)

    def first_state(self) -> Any:
        return [self._inputs[0].stage.start, 0]

    def restore(self, state: Any) -> None:
        start, count = state
        self._inputs[0].seek(start)
        self._begin(tuple(start), count)

    def _begin(self, start: Cursor, count: int) -> None:
        self._start, self._count, self._num_dropped = start, count, 0
        self._records: Iterator[Record[Any]] | None = None
        self._has_ended = False

    def pull(self) -> BlockResult | None:
        if self._has_ended:
            return None
        rows: list[Element] = []
        first, start = self._count, self._start
        error: BaseException | None = None
        until = time.perf_counter() + DEFAULT_POLICY.inline_block_s
        try:
            records = self._open()
            while self._num_dropped < first:
                next(records)
                self._num_dropped += 1
            while True:
                rows.append(next(records).data)
                if time.perf_counter() >= until:
                    break
        except StopIteration:
            self._has_ended = True
        except Exception as raised:
            error = raised
            add_note_once(error, f"In {self._node.label}, added at {self._node.site}.")
        self._count += len(rows)
        self._num_dropped = self._count
        return self.emit(rows, lambda count: [start, first + count], error)

    def _open(self) -> Iterator[Record[Any]]:
        if self._records is None:
            records: Iterator[Record[Any]] = _records(self._node, self._inputs[0])
            for operation in self._node.operations:
                records = iter(operation(records))
            self._records = records
        return self._records


def _records(node: OperationsNode, buffer: InputBuffer) -> Iterator[Record[Any]]:
    """Yield the elements of a buffer, with the metadata of the records they came from."""
    while buffer.fill():
        position = buffer.mark().after(1)[0] - 1
        yield Record(node.metadata(position), buffer.take(1)[0])
    if buffer.error is not None:
        raise buffer.error


@final
class PackBatchesStage(StatefulStage):
    """Packs records into batches. The state is the cursor before the first record of a batch."""

    def __init__(self, node: PackBatchesNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._buffer = self._inputs[0]
        self._begin(self._buffer.stage.start)

    def first_state(self) -> Any:
        return [self._buffer.stage.start]

    def restore(self, state: Any) -> None:
        (start,) = state
        self._buffer.seek(start)
        self._begin(tuple(start))

    def _begin(self, start: Cursor) -> None:
        self._before_last = start
        self._has_ended = False
        self._batches: Iterator[Record[Any]] = pack_and_batch(
            self._documents(),
            length_struct=self._node.length_struct,
            batch_size=self._node.size,
            max_documents=self._node.max_documents,
        )

    def _documents(self) -> Iterator[Record[Any]]:
        buffer, metadata = self._buffer, RecordMetadata(index=0)
        while buffer.fill():
            self._before_last = buffer.mark().after()
            yield Record(metadata, buffer.take(1)[0])
        if buffer.error is not None:
            raise buffer.error
        self._before_last = buffer.mark().after()

    def pull(self) -> BlockResult | None:
        if self._has_ended:
            return None
        before = self._before_last
        try:
            batch = next(self._batches)
        except StopIteration:
            self._has_ended = True
            return None
        except Exception as error:
            add_note_once(error, f"In {self._node.label}, added at {self._node.site}.")
            return self.emit([], lambda _: [before], error)
        after = self._before_last
        return self.emit([batch.data], lambda count: [after] if count else [before])
