"""Ranges of positions: their size follows what the blocks before them took."""

import gc
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.lineage import DenseLineage
from gristmill._engine.executors.inline import InlineExecutor
from gristmill._engine.stages.ranges import RangeStage
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.counters import Counters
from gristmill._metrics.step_time import computing
from gristmill.options import ReadOptions
from tests.policies import LAZY, fixed_blocks, iterate


def sizes_of_blocks(policy: TuningPolicy, *, length: int, seconds: float = 0.0) -> list[int]:
    """Return the sizes of the ranges that an executor gets if each takes some seconds."""
    sizes: list[int] = []

    def read(positions: range) -> BlockResult:
        sizes.append(len(positions))
        block = Block(list(positions), DenseLineage.of_records(positions, num_flat_maps=0))
        return BlockResult(block, step_times=(computing(seconds),))

    stage = RangeStage(
        InlineExecutor(read, policy=policy),
        length=length,
        num_needed=lambda count: count,
        records_per_position=1,
        num_flat_maps=0,
        counters=Counters(["reading"]),
    )
    while stage.pull() is not None:
        pass
    return sizes


def test_ranges_grow_while_their_blocks_take_little_time():
    policy = TuningPolicy(max_block_positions=100, gc_blocks=10**9)
    assert sizes_of_blocks(policy, length=300) == [1, 8, 64, 100, 100, 27]


def test_ranges_stay_small_while_their_blocks_take_long():
    assert sizes_of_blocks(TuningPolicy(), length=3, seconds=math.inf) == [1, 1, 1]


def test_the_policy_can_fix_the_size_of_ranges():
    assert sizes_of_blocks(fixed_blocks(7), length=20) == [7, 7, 6]
    assert sizes_of_blocks(fixed_blocks(7), length=20, seconds=1e9) == [7, 7, 6]


@pytest.fixture
def num_collections() -> Iterator[list[int]]:
    """Count the collections of each generation from here on."""
    counts = [0, 0, 0]

    def count(phase: str, info: dict[str, int]) -> None:
        counts[info["generation"]] += phase == "start"

    gc.callbacks.append(count)
    yield counts
    gc.callbacks.remove(count)


def test_records_that_are_containers_do_not_keep_the_garbage_collector_busy(
    num_collections: list[int],
):
    # Whatever time they take, blocks count as short, and as computed in this thread.
    policy = replace(LAZY, inline_block_s=1e9)
    records = MapDataset.range(2000 * 64).map(lambda number: ([number], [number]))
    batches = records.batch(64, batch_fn=len).to_iter_dataset(ReadOptions(num_threads=0))
    for _ in iterate(batches, policy):
        pass
    # A batch of 64 has 192 containers. In blocks as long as time allows there would be a collection
    # for every 700: hundreds. To find the right length takes about thirty.
    assert sum(num_collections) < 100
