"""How many positions a block gets, from what the blocks before it took."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._engine.tuning.block_size import BlockSize, first_block_size, next_block_size
from gristmill._engine.tuning.measure import BlockStats
from gristmill._engine.tuning.policy import TuningPolicy

POLICY = TuningPolicy()


def first(limit: int = 100, **arguments: Any) -> BlockSize:
    """Return the state before the first block, which should take a second."""
    return first_block_size(1.0, replace(POLICY, max_block_positions=limit), **arguments)


def after(
    state: BlockSize, seconds: float, *, collections: int = 0, waited: bool = False, size: int = 0
) -> BlockSize:
    stats = BlockStats(
        num_elements=1,
        num_positions=size or state.size,
        wall_s=seconds,
        waited_s=seconds if waited else 0.0,
        num_collections=collections,
    )
    return next_block_size(state, stats, POLICY)


def test_blocks_grow_up_to_the_wanted_time():
    state = after(first(), 0.01)
    assert state.size == 8
    state = after(state, 0.3)
    assert state.size == 16
    assert after(state, 0.6).size == 16


def test_blocks_shrink_if_they_take_too_long():
    state = after(first(), 0.3)
    assert after(state, 2.5).size == 1


def test_a_shorter_block_at_the_end_of_a_stream_changes_nothing():
    state = after(after(first(), 0.01), 0.6)
    assert after(state, 0.001, size=3).size == state.size


def test_a_block_has_at_most_so_many_records():
    assert first_block_size(1.0, POLICY, records_per_position=1000).limit == 65
    assert first_block_size(1.0, POLICY, records_per_position=10**6).limit == 1


@pytest.mark.parametrize(
    ("arguments", "factor"),
    [
        ({}, 1),
        ({"num_sources": 7}, 1),
        ({"num_sources": 12}, 3),
        ({"num_sources": 1000}, 8),
        ({"reads_many": True}, 4),
        ({"reads_many": True, "num_sources": 24}, 6),
    ],
)
def test_blocks_that_cost_many_reads_or_share_one_may_take_longer(
    arguments: dict[str, Any], factor: int
):
    assert first_block_size(1.0, POLICY, **arguments).target_s == factor


def test_blocks_that_wait_for_many_records_at_once_may_take_much_longer():
    state = after(first(reads_many=True), 40.0, waited=True)
    assert state.size == 1
    state = after(state, 10.0, waited=True)
    assert state.size == 2


def test_waiting_does_not_lengthen_the_blocks_of_a_source_that_reads_one_by_one():
    state = after(first(), 0.3)
    assert after(state, 10.0, waited=True).size == 1


def test_a_source_whose_blocks_no_longer_wait_gets_short_blocks_again():
    state = first(limit=4096, reads_many=True)
    for _ in range(20):
        state = after(state, 0.1 * state.size, waited=True)
    long = state.size
    for _ in range(POLICY.remote_forget_blocks + 10):
        state = after(state, 0.1 * state.size)

    assert 0.1 * long > 20
    assert 0.1 * state.size <= 2 * 4  # twice the time of a source that reads many


def test_blocks_that_the_garbage_collector_runs_for_are_halved():
    state = after(first(), 0.01)
    state = after(state, 0.01, collections=1)
    state = after(state, 0.3, collections=1)
    assert state.size == 32
    assert after(state, 0.01).size == 32


def test_after_many_blocks_without_garbage_longer_ones_are_tried_again():
    state = after(first(), 0.01)
    state = after(after(state, 0.6, collections=1), 0.6, collections=1)
    sizes: list[int] = []
    for _ in range(6 * POLICY.gc_retry_blocks):
        state = after(state, 0.01)
        sizes.append(state.size)
    assert sizes[POLICY.gc_retry_blocks - 2 :: POLICY.gc_retry_blocks] == [4, 8, 16, 32, 64, 100]


def test_a_collection_now_and_then_changes_nothing():
    state = after(first(limit=64), 0.01)
    for _ in range(5):
        state = after(after(state, 0.6, collections=1), 0.6)
    assert state.size == 8


def test_a_block_of_one_is_not_halved():
    state = first(limit=64)
    for _ in range(5):
        state = after(state, 0.6, collections=1)
    assert state.size == 1


@given(
    cost_s=st.floats(1e-7, 10.0),
    noise=st.lists(st.floats(0.7, 1.4), min_size=40, max_size=40),
    reads_many=st.booleans(),
)
def test_blocks_converge_to_about_the_wanted_time(
    cost_s: float, noise: list[float], reads_many: bool
):
    state = first_block_size(0.0015, POLICY, reads_many=reads_many)
    for factor in noise:
        state = after(state, state.size * cost_s * factor)

    seconds = state.size * cost_s
    assert state.size == 1 or seconds <= 3 * state.target_s
    assert state.size == state.limit or seconds >= state.target_s / 3
