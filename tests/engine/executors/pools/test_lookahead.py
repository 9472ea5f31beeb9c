"""How many blocks a stream computes ahead, as pure functions."""

from typing import Any

import pytest

from gristmill._engine.executors.pools.window import (
    LookaheadLimits,
    has_room,
    late_timeout_s,
    max_block_positions,
    max_blocks_per_worker,
    shrunk_max_blocks,
)
from gristmill._engine.tuning.policy import TuningPolicy

POLICY = TuningPolicy()


def limits(**arguments: Any) -> LookaheadLimits:
    defaults: dict[str, Any] = {
        "num_workers": 2,
        "buffer_size": 1,
        "memory_budget_bytes": None,
        "max_blocks": 4,
        "policy": POLICY,
    }
    return LookaheadLimits(**{**defaults, **arguments})


def room(num_blocks: int, num_bytes: float = 0, *, positions: int = 10, **arguments: Any) -> bool:
    return has_room(
        limits(**arguments),
        num_blocks=num_blocks,
        num_positions=positions * num_blocks,
        num_bytes=num_bytes,
    )


def test_two_blocks_for_each_worker_keep_it_busy():
    assert [room(count) for count in range(6)] == [True, True, True, True, False, False]


def test_more_blocks_are_submitted_until_the_users_buffer_is_full():
    assert [room(count, positions=1, buffer_size=2) for count in (5, 6)] == [True, False]


def test_a_late_block_makes_room_for_more_within_the_default_budget():
    assert room(9, max_blocks=10)
    assert not room(10, max_blocks=10)
    assert not room(9, num_bytes=POLICY.lookahead_bytes, max_blocks=10)


def test_the_users_budget_bounds_what_is_ahead_but_no_worker_is_left_without_a_block():
    budget = 1000
    assert room(2, num_bytes=999, memory_budget_bytes=budget)
    assert not room(2, num_bytes=1000, memory_budget_bytes=budget)
    assert room(1, num_bytes=1000, memory_budget_bytes=budget)


def test_blocks_are_as_large_as_fits_a_cache_and_two_for_each_worker_fit_the_budget():
    small = limits(memory_budget_bytes=4000)
    assert max_block_positions(small, bytes_per_position=100) == 10
    assert (
        max_block_positions(limits(), bytes_per_position=1024)
        == POLICY.cache_friendly_bytes // 1024
    )


def test_a_block_has_at_least_one_position():
    assert max_block_positions(limits(memory_budget_bytes=4000), bytes_per_position=1e9) == 1


def test_elements_without_shared_memory_do_not_limit_a_block():
    assert max_block_positions(limits(), bytes_per_position=0.0) is None


@pytest.mark.parametrize(
    ("buffer_size", "block_positions", "expected"), [(1, 1, 2), (9, 1, 10), (9, 3, 4), (9, 100, 2)]
)
def test_a_worker_gets_as_many_blocks_as_the_users_buffer_takes(
    buffer_size: int, block_positions: int, expected: int
):
    assert max_blocks_per_worker(limits(buffer_size=buffer_size), block_positions) == expected


def test_a_block_is_late_after_some_times_the_typical_time():
    def timeout_s(elapsed_s: float) -> float | None:
        return late_timeout_s(limits(), has_room=False, typical_s=2.0, elapsed_s=elapsed_s)

    assert timeout_s(0.0) == 2 * POLICY.late_factor
    assert timeout_s(1.0) == 2 * POLICY.late_factor - 1
    assert timeout_s(100.0) == 0


def test_where_there_is_room_no_worker_waits():
    assert late_timeout_s(limits(), has_room=True, typical_s=2.0, elapsed_s=0.0) == 0


def test_the_number_of_blocks_behind_a_late_one_is_limited():
    full = limits(max_blocks=2 * POLICY.max_blocks_per_worker)
    assert late_timeout_s(full, has_room=False, typical_s=2.0, elapsed_s=100.0) is None


def test_the_look_ahead_shrinks_to_two_blocks_for_each_worker():
    assert shrunk_max_blocks(limits(max_blocks=10)) == 9
    assert shrunk_max_blocks(limits(max_blocks=4)) == 4
