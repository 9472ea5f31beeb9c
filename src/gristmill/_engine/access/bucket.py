"""Read batches of elements of similar length, as their schedule lists them."""

from bisect import bisect_right
from itertools import pairwise
from typing import final

import numpy as np

from gristmill._base.indices import as_indices, join_epochs, split_epochs
from gristmill._data.batching.bucket_schedule import BucketSchedule
from gristmill._engine.access.context import Allocate, ReadContext, Reader, result_at
from gristmill._engine.access.filter import present_rows
from gristmill._engine.access.skip_errors import absent_because_bad
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.error_notes import add_context
from gristmill._engine.blocks.lineage import lineage_of
from gristmill._plan.nodes.buckets import BucketNode
from gristmill.errors import PlanError
from gristmill.types import Element, Indices, Span


def bucket_reader(node: BucketNode, context: ReadContext, read_parent: Reader) -> Reader:
    """Return the reader of batches, which reads the elements of all of them in one call."""
    schedules = _Schedules(node)

    def read(span: Span) -> BlockResult:
        try:
            found = [schedules.find(*batch) for batch in _batches_of(node, span)]
        except Exception as error:
            return BlockResult(Block.empty(), add_context(error, node, lineage_of(span), 0))
        ends = np.cumsum([len(batch.indices) for batch in found]).tolist()
        result = read_parent(np.concatenate([batch.indices for batch in found]))
        rows = result.block.rows()
        batches: list[Element] = []
        bad_rows = set(absent_because_bad(rows, result.bad_records))
        bad_records = [bad.at(bisect_right(ends, bad.row)) for bad in result.bad_records]
        for batch, (first, end) in zip(found, pairwise((0, *ends)), strict=True):
            if end > len(rows):
                return result_at(span, batches, result.error, bad_records)
            elements = [rows[row] for row in range(first, end) if row not in bad_rows]
            try:
                made = _make_batch(node, batch, elements, context.allocate) if elements else None
            except Exception as error:
                failed = add_context(error, node, lineage_of(span), len(batches))
                return result_at(span, batches, failed, bad_records)
            batches.append(made)
        return result_at(span, batches, None, bad_records)

    return read


def _batches_of(node: BucketNode, span: Span) -> list[tuple[int, int]]:
    """Return the epoch and the number of each batch."""
    epochs, numbers = split_epochs(as_indices(span), node.length())
    return list(zip(epochs.tolist(), numbers.tolist(), strict=True))


@final
class _BucketBatch:
    """A planned batch: the indices of its elements in the parent, and its bucket."""

    __slots__ = ("bucket", "indices", "is_empty")

    def __init__(self, indices: Indices, bucket: int, *, is_empty: bool) -> None:
        self.indices = indices
        self.bucket = bucket
        self.is_empty = is_empty


@final
class _Schedules:
    """The schedules of the last two epochs that were read: a block may span both."""

    def __init__(self, node: BucketNode) -> None:
        self._node = node
        self._schedules: dict[int, BucketSchedule] = {}

    def find(self, epoch: int, number: int) -> _BucketBatch:
        """Return a batch of an epoch."""
        schedules = self._schedules
        schedule = schedules.get(epoch)
        if schedule is None:
            schedule = self._node.schedule(epoch)
            # Replaced as a whole, as threads may share it.
            kept = {one: known for one, known in schedules.items() if abs(one - epoch) == 1}
            self._schedules = {**kept, epoch: schedule}
        count = self._node.parent.length()
        offsets = schedule.elements(number)
        indices = join_epochs(np.full(len(offsets), epoch), offsets, count, bound=count)
        is_empty = not schedule.counts[number]
        return _BucketBatch(indices, int(schedule.buckets[number]), is_empty=is_empty)


def _make_batch(
    node: BucketNode, batch: _BucketBatch, elements: list[Element], allocate: Allocate
) -> Element:
    if present_rows(elements) is not None:
        raise PlanError(
            "An element of the batch is absent (None). Call `to_iter_dataset()` before "
            "`bucket_by_length`, and leave `lengths` out."
        )
    if batch.is_empty:
        return node.buckets.make_empty(elements[0], batch.bucket)
    return node.buckets.make(elements, batch.bucket, allocate=allocate)
