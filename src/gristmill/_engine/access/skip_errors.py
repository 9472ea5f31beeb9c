"""Skip the records on which reading or a step raises, and report each skip."""

from collections.abc import Callable
from typing import TypeVar

from gristmill._addresses import strip_credentials
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._engine.blocks.block import (
    Block,
    BlockResult,
    SkipEvent,
    SourceEndedError,
    join_results,
)
from gristmill._engine.blocks.error_notes import record_key, step_name
from gristmill._engine.blocks.lineage import Lineage
from gristmill._plan.nodes.base import Node
from gristmill.errors import PlanError
from gristmill.types import Span

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


def _skip_event(node: Node, lineage: Lineage, result: BlockResult) -> SkipEvent:
    position = lineage.position(result.row)
    error = result.error
    assert isinstance(error, Exception)
    record = SkippedRecord(
        position=position,
        record=record_key(node, position),
        step=step_name(node),
        error=_description_of(error),
    )
    # The frames of the traceback hold the whole block in memory.
    return SkipEvent(lineage.after(result.row), record, error.with_traceback(None))


def _description_of(error: Exception) -> str:
    try:
        return strip_credentials(f"{type(error).__name__}: {error}")
    except Exception:
        return type(error).__name__
