"""Ranges computed inline: when they are collected, and with what computing them took."""

import gc
from collections.abc import Callable

import pytest

from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.lineage import DenseLineage
from gristmill._engine.executors.base import Executor
from gristmill._engine.executors.inline import InlineExecutor
from gristmill._engine.executors.threads import ThreadExecutor
from gristmill._engine.tuning.measure import BlockStats
from gristmill._engine.tuning.policy import DEFAULT_POLICY
from gristmill._metrics.step_time import computing

Read = Callable[[range], BlockResult]


def block_of(positions: range, *, seconds: float = 0.0, has_waited: bool = False) -> BlockResult:
    lineage = DenseLineage.of_records(positions, num_flat_maps=0)
    return BlockResult(
        Block(list(positions), lineage), step_times=(computing(seconds),), has_waited=has_waited
    )


def stats_of(executor: Executor, size: int = 3) -> BlockStats:
    executor.submit(range(size))
    result = executor.collect(has_more=False)
    assert result is not None
    assert result.stats is not None
    return result.stats


def test_a_range_is_computed_when_it_is_collected():
    read: list[range] = []
    executor = InlineExecutor(
        lambda positions: (read.append(positions), block_of(positions))[1], policy=DEFAULT_POLICY
    )
    executor.submit(range(3))
    assert not executor.has_room
    assert read == []

    result = executor.collect(has_more=True)

    assert result is not None
    assert result.block.rows() == [0, 1, 2]
    assert executor.has_room


def test_cancelled_ranges_are_not_computed():
    executor = InlineExecutor(block_of, policy=DEFAULT_POLICY)
    executor.submit(range(3))
    executor.cancel()
    assert executor.has_room


@pytest.mark.parametrize("has_waited", [False, True])
def test_the_result_has_what_computing_it_took(has_waited: bool):
    def read(positions: range) -> BlockResult:
        return block_of(positions, seconds=0.25, has_waited=has_waited)

    stats = stats_of(InlineExecutor(read, policy=DEFAULT_POLICY))

    assert (stats.num_positions, stats.num_elements) == (3, 3)
    assert stats.wall_s == stats.serial_s == 0.25
    assert stats.waited_s == (0.25 if has_waited else 0.0)


def collect_garbage(positions: range) -> BlockResult:
    gc.collect(0)
    return block_of(positions)


def test_garbage_collections_count_only_where_nothing_else_can_have_caused_them():
    inline = InlineExecutor(collect_garbage, policy=DEFAULT_POLICY)
    threads = ThreadExecutor(collect_garbage, most_positions_ahead=100, policy=DEFAULT_POLICY)

    assert stats_of(inline).num_collections > 0
    assert stats_of(threads).num_collections == 0
