"""Skip the records on which reading or a step raises, and report each skip.

A stream leaves bad records out. A dataset leaves `None` at the index of a bad record, as a filter
does, and lists it: batches are made without it, and the list becomes the skips of the stream.
Steps above a batch do not skip: with the element, all records of the batch would be lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from gristmill._addresses import strip_credentials
from gristmill._base.trees.columns import Columns
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._engine.access.context import ReadContext, Reader, RunStep
from gristmill._engine.blocks.block import (
    BadRecord,
    Block,
    BlockResult,
    SkipEvent,
    SourceEndedError,
    join_results,
)
from gristmill._engine.blocks.error_notes import record_key, step_name
from gristmill._engine.blocks.lineage import Lineage, lineage_of
from gristmill._plan.nodes.base import Node
from gristmill._plan.record_index import combines_records
from gristmill.errors import PlanError
from gristmill.types import Element, Span

Items = TypeVar("Items", Span, Block)
"""What is computed: positions to read, or a block to run a step on."""


def skipping_errors(
    node: Node, run: Callable[[Items], BlockResult], lineage_of_items: Callable[[Items], Lineage]
) -> Callable[[Items], BlockResult]:
    """Return a function that runs again on the items after each bad one.

    Args:
        node: The node that raises.
        run: Computes some items, up to the first error.
        lineage_of_items: Returns the lineage of items, to name the bad ones.
    """

    def run_skipping(items: Items) -> BlockResult:
        result = run(items)
        if not _is_bad_record(result.error):
            return result
        results, skips, num_done = [result], list[SkipEvent](), 0
        while _is_bad_record(result.error):
            skips.append(_skip_event(node, lineage_of_items(items), result))
            num_done += result.row + 1
            items = items[result.row + 1 :]
            result = run(items) if len(items) else BlockResult(Block.empty())
            results.append(result)
        joined = join_results(results)
        return BlockResult(
            block=joined.block,
            error=joined.error,
            row=num_done + result.row,
            skips=tuple(skips),
            filter_counts=joined.filter_counts,
        )

    return run_skipping


def _is_bad_record(error: BaseException | None) -> bool:
    """Return whether an error is due to the record: any other one would come with each record."""
    return isinstance(error, Exception) and not isinstance(
        error, PlanError | MemoryError | SourceEndedError
    )


def leaves_out_bad_records(node: Node, context: ReadContext) -> bool:
    """Return whether a step leaves out the records on which it raises."""
    return context.skips_errors and not combines_records(node)


def leaving_out(node: Node, run: RunStep) -> RunStep:
    """Return a step of a dataset that leaves `None` at the row of each bad record.

    Args:
        node: The node that raises.
        run: Runs on a block, up to the first error.
    """

    def run_on_all(block: Block) -> BlockResult:
        result = run(block)
        if not _is_bad_record(result.error):
            return result
        return _leave_out(node, run, block, block.lineage, result)

    return run_on_all


def leaving_out_at(node: Node, read: Reader) -> Reader:
    """Return a reader of a dataset that leaves `None` at the index of each bad record.

    Args:
        node: The node that raises.
        read: Reads the elements at some indices, up to the first error.
    """

    def read_all(indices: Span) -> BlockResult:
        result = read(indices)
        if not _is_bad_record(result.error):
            return result
        return _leave_out(node, read, indices, lineage_of(indices), result)

    return read_all


def _leave_out(
    node: Node,
    run: Callable[[Items], BlockResult],
    items: Items,
    lineage: Lineage,
    result: BlockResult,
) -> BlockResult:
    """Return the elements of all items, given the result up to the first bad one."""
    rows: list[Element] = []
    bad_records: list[BadRecord] = []
    while True:
        rows += result.block.rows()
        if not _is_bad_record(result.error):
            break
        record, error = _describe(node, lineage.position(len(rows)), result)
        bad_records.append(BadRecord(len(rows), record, error))
        items = items[len(result.block) + 1 :]
        rows.append(None)
        result = run(items) if len(items) else BlockResult(Block.empty())
    block = Block(rows, lineage[: len(rows)])
    return BlockResult(block, result.error, row=len(rows), bad_records=tuple(bad_records))


def absent_because_bad(
    data: Sequence[Element] | Columns, bad_records: Sequence[BadRecord]
) -> list[int]:
    """Return the rows that hold no element because of bad records, in ascending order."""
    if not bad_records or isinstance(data, Columns):
        return []
    return sorted({bad.row for bad in bad_records if data[bad.row] is None})


def skips_of(result: BlockResult, lineage: Lineage) -> tuple[SkipEvent, ...]:
    """Return the skips of a stream for what was left out of a dataset.

    Args:
        result: Elements of the dataset.
        lineage: Their lineage in the stream.
    """
    return tuple(
        SkipEvent(
            lineage.after(bad.row),
            lineage.before(bad.row),
            replace(bad.record, position=lineage.position(bad.row)),
            bad.error,
        )
        for bad in result.bad_records
    )


def _skip_event(node: Node, lineage: Lineage, result: BlockResult) -> SkipEvent:
    row = result.row
    record, error = _describe(node, lineage.position(row), result)
    return SkipEvent(lineage.after(row), lineage.before(row), record, error)


def _describe(node: Node, position: int, result: BlockResult) -> tuple[SkippedRecord, Exception]:
    """Return the entry for the record at a position, on which a node raised, and the error."""
    error = result.error
    assert isinstance(error, Exception)
    record = SkippedRecord(
        position=position,
        record=record_key(node, position),
        step=step_name(node),
        error=_description_of(error),
    )
    # The frames of the traceback hold the whole block in memory.
    return record, error.with_traceback(None)


def _description_of(error: Exception) -> str:
    try:
        return strip_credentials(f"{type(error).__name__}: {error}")
    except Exception:
        return type(error).__name__
