"""Blocks: consecutive elements of a stream with their lineage, and the error that follows them.

A failure does not lose the elements before it, and nothing is computed twice to find them: each
step returns a *block result*, the elements it finished before the user's code raised, and the error
that follows them. The next step runs on those elements first. If it raises too, its error comes
earlier in the stream and replaces the one from below.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.seed import GeneratorState
from gristmill._base.trees.columns import Columns
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._engine.blocks.lineage import DenseLineage, Lineage, concatenate_lineages
from gristmill._engine.tuning.measure import BlockStats
from gristmill._metrics.step_time import StepTime, ThreadReading, add_times, begin_step, end_step
from gristmill._metrics.timeline import Work
from gristmill.types import Cursor, Element, Indices

Generators: TypeAlias = Sequence[GeneratorState | np.random.Generator]
"""One generator per element, for the next random step: the states of ours after their last use, or
the generators of a user's sampler."""


@final
@dataclass(slots=True, eq=False)
class Block:
    """Some consecutive elements of a stream.

    Never modified, but not `frozen`, which makes construction slower.
    """

    data: list[Element] | Columns
    lineage: Lineage
    generators: Generators | None = None

    def __len__(self) -> int:
        return len(self.lineage)

    def rows(self) -> list[Element]:
        """Return the elements one by one."""
        return self.data.rows() if isinstance(self.data, Columns) else self.data

    def with_rows(self, rows: list[Element]) -> "Block":
        """Return a block of other elements with this lineage, or with the start of it."""
        if len(rows) == len(self):
            return Block(rows, self.lineage, self.generators)
        return Block(rows, self.lineage[: len(rows)], (self.generators or [])[: len(rows)] or None)

    def with_columns(self, columns: Columns) -> "Block":
        """Return a block of other elements with this lineage."""
        return Block(columns, self.lineage, self.generators)

    def take(self, chosen: Indices) -> "Block":
        """Return the elements at some rows, in ascending order, as rows."""
        if len(chosen) == len(self):
            return self
        rows, generators = self.rows(), self.generators
        numbers: list[int] = chosen.tolist()
        return Block(
            [rows[row] for row in numbers],
            self.lineage.sparse()[chosen],
            None if generators is None else [generators[row] for row in numbers],
        )

    def __getitem__(self, rows: slice) -> "Block":
        generators = self.generators
        return Block(
            self.data[rows], self.lineage[rows], None if generators is None else generators[rows]
        )

    @staticmethod
    def empty() -> "Block":
        """Return a block without elements."""
        return Block([], DenseLineage.of_records(range(0), num_flat_maps=0))


def concatenate(blocks: list[Block]) -> Block:
    """Return one block, of rows, for several that follow each other."""
    if len(blocks) == 1:
        return blocks[0]
    generators = [block.generators for block in blocks]
    return Block(
        [row for block in blocks for row in block.rows()],
        concatenate_lineages([block.lineage for block in blocks]),
        None if None in generators else [one for some in generators for one in some or ()],
    )


logger = logging.getLogger("gristmill")


@final
class SourceEndedError(StopIteration):
    """A source has fewer records than its length. It follows a block, in place of an error.

    A stream behind `__getitem__` raises `StopIteration` when it is exhausted. That ends the epoch:
    the elements before it are yielded, a last, smaller batch included.
    """


def log_source_end(end: SourceEndedError) -> None:
    """Log which source ended, and where."""
    logger.info("%s", end)


@final
@dataclass(frozen=True, slots=True)
class SkipEvent:
    """A bad record that was skipped, on request."""

    cursor: Cursor
    """The cursor after the record, or after the batch that lacks it."""
    start: Cursor
    """The cursor before the record, or before the batch that lacks it."""
    record: SkippedRecord
    error: Exception


@final
@dataclass(frozen=True, slots=True)
class BadRecord:
    """A bad record that is left out of a dataset: at its row is `None`, or a batch without it."""

    row: int
    """The row of a block."""
    record: SkippedRecord
    """Its position is the one that raised, until the dataset becomes a stream."""
    error: Exception

    def at(self, row: int) -> "BadRecord":
        """Return the same bad record in another row."""
        return BadRecord(row, self.record, self.error)


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
    step_times: tuple[StepTime, ...] = ()
    """What each step took, bottom up."""
    bad_records: tuple[BadRecord, ...] = ()
    """What is left out of a dataset on request, in the order of the rows."""
    filter_counts: tuple[FilterCounts, ...] = ()
    has_waited: bool = False
    """Whether most of the time was spent waiting, for a disk or a network."""
    stats: BlockStats | None = None
    """What computing the range took; set by the executor that computed it."""
    reading: ThreadReading | None = None
    """The clocks at the end of the last step, for the next one in the same thread."""
    busy_s: float | None = None
    """Seconds for which a worker was busy with it, if several threads of it computed the steps."""
    transfer_s: float = 0.0
    """Seconds of these in which the worker copied it into shared memory."""
    work: tuple[Work, ...] = ()
    """Which threads or workers computed it, and when; set by the executor."""
    digests: tuple[str, ...] | None = None
    """The checksum of each element, if a ledger is kept; set where the stream ends."""

    @property
    def seconds(self) -> float:
        """Seconds spent in all steps."""
        return sum([step.elapsed_s for step in self.step_times])

    def with_block(self, block: Block) -> "BlockResult":
        """Return the same result with another block."""
        return BlockResult(
            block=block,
            error=self.error,
            row=self.row,
            skips=self.skips,
            step_times=self.step_times,
            filter_counts=self.filter_counts,
            has_waited=self.has_waited,
            stats=self.stats,
            reading=self.reading,
            bad_records=self.bad_records,
        )

    def with_step_times(
        self, step_times: tuple[StepTime, ...], reading: ThreadReading | None
    ) -> "BlockResult":
        """Return the same result with other times."""
        return BlockResult(
            block=self.block,
            error=self.error,
            row=self.row,
            skips=self.skips,
            step_times=step_times,
            filter_counts=self.filter_counts,
            has_waited=self.has_waited,
            stats=self.stats,
            reading=reading,
            bad_records=self.bad_records,
        )

    def then(
        self, run: Callable[[Block], "BlockResult"], *, is_timed: bool = True
    ) -> "BlockResult":
        """Run a step on the elements of this result.

        Args:
            run: The step.
            is_timed: Whether to measure the step here. Those of a dataset have a `NestedClock`.
        """
        step_times, reading = self.step_times, self.reading
        if not len(self.block):
            more = (StepTime(),) if is_timed else ()
            return self.with_step_times(step_times + more, reading)
        if is_timed:
            begin = begin_step(reading)
            result = run(self.block)
            step, reading = end_step(begin)
            step_times = (*step_times, step)
        else:
            result = run(self.block)
        skips, filter_counts = self.skips, self.filter_counts
        bad_records = self.bad_records
        if bad_records or result.bad_records:  # in a dataset, a step leaves each row in its place
            bad_records = in_rows(bad_records + result.bad_records, len(result.block))
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
            step_times=step_times,
            filter_counts=filter_counts + result.filter_counts,
            stats=self.stats,
            reading=reading,
            bad_records=bad_records,
        )


def in_rows(bad_records: Iterable[BadRecord], num_rows: int) -> tuple[BadRecord, ...]:
    """Return the bad records of the first rows of a block, in the order of the rows."""
    found = [bad for bad in bad_records if bad.row < num_rows]
    return tuple(sorted(found, key=lambda bad: bad.row))


def join_results(results: list[BlockResult]) -> BlockResult:
    """Return one result for several that follow each other; only the last may have an error."""
    blocks = [result.block for result in results if len(result.block)]
    firsts = accumulate((len(result.block) for result in results), initial=0)
    return BlockResult(
        concatenate(blocks) if blocks else Block.empty(),
        results[-1].error if results else None,
        skips=tuple(skip for result in results for skip in result.skips),
        step_times=tuple(
            map(add_times, zip(*(result.step_times for result in results), strict=False))
        ),
        filter_counts=tuple(counts for result in results for counts in result.filter_counts),
        has_waited=any(result.has_waited for result in results),
        work=tuple(work for result in results for work in result.work),
        bad_records=tuple(
            bad.at(first + bad.row)
            for first, result in zip(firsts, results, strict=False)
            for bad in result.bad_records
        ),
    )
