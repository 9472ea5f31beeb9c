"""Block results: an error follows the elements before it, whatever step raises it."""

from collections.abc import Callable

import numpy as np

from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._engine.blocks.block import (
    Block,
    BlockResult,
    FilterCounts,
    SkipEvent,
    join_results,
)
from gristmill._engine.blocks.lineage import lineage_of
from gristmill._metrics.step_time import StepTime, computing

BELOW = OSError("below")


def times(*seconds: float) -> tuple[StepTime, ...]:
    return tuple(map(computing, seconds))


def block_of(numbers: range) -> Block:
    return Block(list(numbers), lineage_of(numbers))


def skip(position: int) -> SkipEvent:
    record = SkippedRecord(position=position, record=position, step="Map", error="ValueError")
    return SkipEvent((position + 1,), (position,), record, ValueError())


def counts(numbers: range, num_above: int = 0) -> FilterCounts:
    return FilterCounts(num_above, np.array(numbers), np.array([n % 2 == 0 for n in numbers]))


def negate_until(bad: int) -> Callable[[Block], BlockResult]:
    def run(block: Block) -> BlockResult:
        rows = block.rows()
        if bad not in rows:
            return BlockResult(block.with_rows([-row for row in rows]))
        end = rows.index(bad)
        return BlockResult(block.with_rows([-row for row in rows[:end]]), ValueError(bad), end)

    return run


def test_an_error_from_below_stays_after_the_elements_of_the_next_step():
    result = BlockResult(block_of(range(3)), BELOW, row=3).then(negate_until(99))

    assert result.block.rows() == [0, -1, -2]
    assert result.error is BELOW
    assert result.row == 3


def test_an_error_of_the_next_step_comes_earlier_and_replaces_it():
    result = BlockResult(block_of(range(3)), BELOW, row=3).then(negate_until(1))

    assert result.block.rows() == [0]
    assert str(result.error) == "1"
    assert result.row == 1


def test_a_step_does_not_run_on_no_elements():
    def run(block: Block) -> BlockResult:
        raise AssertionError("called")

    result = BlockResult(Block.empty(), BELOW, skips=(skip(4),), step_times=(computing(1.0),)).then(
        run
    )

    assert result.error is BELOW
    assert [event.record.position for event in result.skips] == [4]
    assert result.step_times == (computing(1.0), computing(0.0))


def test_skips_and_counts_past_an_error_are_dropped():
    below = BlockResult(
        block_of(range(9)), skips=(skip(2), skip(7)), filter_counts=(counts(range(9)),)
    )

    failed, whole = below.then(negate_until(5)), below.then(negate_until(99))

    assert [event.record.position for event in failed.skips] == [2]
    assert failed.filter_counts[0].positions.tolist() == [0, 1, 2, 3, 4]
    assert len(whole.skips) == 2
    assert len(whole.filter_counts[0].positions) == 9


def test_skips_counts_and_times_of_a_step_come_after_those_below():
    def run(block: Block) -> BlockResult:
        return BlockResult(block, skips=(skip(1),), filter_counts=(counts(range(2), 1),))

    below = BlockResult(
        block_of(range(3)),
        skips=(skip(0),),
        step_times=(computing(1.0),),
        filter_counts=(counts(range(3), 2),),
    )
    result = below.then(run)

    assert [event.record.position for event in result.skips] == [0, 1]
    assert [counted.num_above for counted in result.filter_counts] == [2, 1]
    assert len(result.step_times) == 2
    assert result.seconds >= 1.0


def test_results_that_follow_each_other_are_joined():
    joined = join_results(
        [
            BlockResult(block_of(range(2)), step_times=times(1.0, 2.0), skips=(skip(0),)),
            BlockResult(Block.empty(), step_times=times(0.5, 0.0), has_waited=True),
            BlockResult(
                block_of(range(5, 7)),
                BELOW,
                step_times=times(1.0, 1.0),
                skips=(skip(6),),
            ),
        ]
    )

    assert joined.block.rows() == [0, 1, 5, 6]
    assert joined.error is BELOW
    assert joined.step_times == (computing(2.5), computing(3.0))
    assert len(joined.skips) == 2
    assert joined.has_waited


def test_no_results_are_an_empty_one():
    joined = join_results([])

    assert len(joined.block) == 0
    assert joined.error is None
