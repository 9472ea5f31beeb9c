"""Waiting for a disk or a network is distinguished from computing."""

import math
import threading

import pytest

from gristmill._engine.tuning.measure import (
    BlockStats,
    Stopwatch,
    computed_stats,
    has_mostly_waited,
    unexplained_wait_s,
)
from gristmill._engine.tuning.policy import TuningPolicy

POLICY = TuningPolicy()


def test_code_that_waits_has_waited():
    watch = Stopwatch()
    threading.Event().wait(0.02)
    watch.stop()

    assert watch.has_waited
    assert watch.wall_s >= 0.02
    assert watch.cpu_s < 0.5 * watch.wall_s


def test_code_that_computes_has_not_waited():
    found: list[bool] = []
    for _ in range(10):  # another thread may keep it from a core now and then
        watch = Stopwatch()
        sum(range(100_000))
        watch.stop()
        found.append(watch.has_waited)
        assert 0.0 <= watch.cpu_s <= watch.wall_s
    assert not all(found)


def test_the_policy_sets_what_counts_as_waiting():
    watch = Stopwatch(TuningPolicy(waiting_share=-math.inf, min_waiting_s=-math.inf))
    watch.stop()
    assert watch.has_waited


@pytest.mark.parametrize(
    ("wall_s", "waited_s", "expected"),
    [(0.01, 0.009, True), (0.01, 0.004, False), (0.0001, 0.0001, False)],
)
def test_a_block_waited_if_most_of_a_long_enough_time_was_waiting(
    wall_s: float, waited_s: float, expected: bool
):
    assert has_mostly_waited(BlockStats(1, wall_s=wall_s, waited_s=waited_s), POLICY) == expected


@pytest.mark.parametrize("has_waited", [True, False])
def test_a_block_that_was_computed_alone_took_as_long_as_inline(has_waited: bool):
    stats = computed_stats(num_elements=1, num_positions=1, wall_s=0.25, has_waited=has_waited)
    assert stats.serial_s == stats.wall_s == 0.25
    assert has_mostly_waited(stats, POLICY) == has_waited


@pytest.mark.parametrize(
    ("cpu_s", "num_concurrent", "expected"),
    [(1.0, 1, 0.0), (0.25, 1, 0.75), (0.25, 4, 0.0), (0.5, 4, 0.0), (0.0, 16, 1.0)],
)
def test_turns_of_other_threads_explain_why_a_thread_did_not_compute(
    cpu_s: float, num_concurrent: int, expected: float
):
    waited_s = unexplained_wait_s(wall_s=1.0, cpu_s=cpu_s, num_concurrent=num_concurrent)
    assert waited_s == expected
