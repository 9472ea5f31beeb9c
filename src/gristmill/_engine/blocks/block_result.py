"""Block results: the elements computed before an error, and the error.

A failure does not lose the elements before it, and nothing is computed twice to find them: each
step returns the elements it finished before the user's code raised, and the error that follows
them. The next step runs on those elements first. If it raises too, its error comes earlier in the
stream and replaces the one from below.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._engine.blocks.block import Block, concatenate
from gristmill._engine.tuning.measure import BlockStats
from gristmill.types import Cursor, Indices


@final
@dataclass(frozen=True, slots=True)
class SkipEvent:
    """A bad record that was skipped, on request."""

    cursor: Cursor
    """The cursor after the record."""
    record: SkippedRecord
    error: Exception


@final
@dataclass(frozen=True, slots=True)
class FilterCounts:
    """The elements that one filter saw, and which of them it kept."""

    num_above: int
    """The number of steps above the filter, which identifies it."""
    positions: Indices
    has_passed: NDArray[np.bool_]

    def before(self, position: int) -> "FilterCounts":
        """Return the counts of earlier positions."""
        end = int(np.searchsorted(self.positions, position))
        return FilterCounts(self.num_above, self.positions[:end], self.has_passed[:end])


@final
@dataclass(slots=True, eq=False)
class BlockResult:
    """Some elements, the error that follows them if there is one, and what computing them took.

    Not modified once an executor has returned it, but not `frozen`: that makes construction four
    times as slow (0.8 us), once per block and step. For the same reason it is not copied by
    `dataclasses.replace` here.
    """

    block: Block
    error: BaseException | None = None
    row: int = 0
    """The row of its input that the step was at when it raised `error`."""
    skips: tuple[SkipEvent, ...] = ()
    step_seconds: tuple[float, ...] = ()
    """Seconds spent in each step, bottom up."""
    filter_counts: tuple[FilterCounts, ...] = ()
    has_waited: bool = False
    """Whether most of the time was spent waiting, for a disk or a network."""
    stats: BlockStats | None = None
    """What computing the range took; set by the executor that computed it."""

    @property
    def seconds(self) -> float:
        """Seconds spent in all steps."""
        return sum(self.step_seconds)

    def with_block(self, block: Block) -> "BlockResult":
        """Return the same result with another block."""
        return BlockResult(
            block=block,
            error=self.error,
            row=self.row,
            skips=self.skips,
            step_seconds=self.step_seconds,
            filter_counts=self.filter_counts,
            has_waited=self.has_waited,
            stats=self.stats,
        )

    def with_step_seconds(self, step_seconds: tuple[float, ...]) -> "BlockResult":
        """Return the same result with other times."""
        return BlockResult(
            block=self.block,
            error=self.error,
            row=self.row,
            skips=self.skips,
            step_seconds=step_seconds,
            filter_counts=self.filter_counts,
            has_waited=self.has_waited,
            stats=self.stats,
        )

    def then(self, run: Callable[[Block], "BlockResult"]) -> "BlockResult":
        """Run a step on the elements of this result."""
        if not len(self.block):
            return self.with_step_seconds((*self.step_seconds, 0.0))
        start = time.perf_counter()
        result = run(self.block)
        step_seconds = (*self.step_seconds, time.perf_counter() - start)
        skips, filter_counts = self.skips, self.filter_counts
        # An error of this step comes before some of the skips and filter counts from below.
        if result.error is not None and skips:
            cursor = self.block.lineage.after(result.row)
            skips = tuple(skip for skip in skips if skip.cursor <= cursor)
        if result.error is not None and filter_counts:
            position = self.block.lineage.position(result.row)
            filter_counts = tuple(counts.before(position) for counts in filter_counts)
        return BlockResult(
            block=result.block,
            error=self.error if result.error is None else result.error,
            row=self.row if result.error is None else result.row,
            skips=skips + result.skips,
            step_seconds=step_seconds,
            filter_counts=filter_counts + result.filter_counts,
            stats=self.stats,
        )


def join_results(results: list[BlockResult]) -> BlockResult:
    """Return one result for several that follow each other; only the last may have an error."""
    blocks = [result.block for result in results if len(result.block)]
    return BlockResult(
        concatenate(blocks) if blocks else Block.empty(),
        results[-1].error if results else None,
        skips=tuple(skip for result in results for skip in result.skips),
        step_seconds=tuple(
            map(sum, zip(*(result.step_seconds for result in results), strict=False))
        ),
        filter_counts=tuple(counts for result in results for counts in result.filter_counts),
        has_waited=any(result.has_waited for result in results),
    )
