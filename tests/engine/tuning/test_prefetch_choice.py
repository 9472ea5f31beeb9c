"""Whether a background thread should prefetch, from how busy the consumer is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._engine.tuning.measure import BlockStats
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._engine.tuning.prefetch_choice import (
    ConsumerLoad,
    ThreadAction,
    after_block,
    after_request,
    choose_thread,
)
from tests.engine.tuning.simulator import INLINE, Cost, Simulator, Workload

POLICY = TuningPolicy()


def load_after(blocks: list[tuple[float, float]]) -> ConsumerLoad:
    """Return the load at a request, after blocks that took and then were used for some seconds."""
    load, now = ConsumerLoad(), 0.0
    for seconds, used_s in blocks:
        load = after_request(load, now, POLICY)
        load = after_block(load, BlockStats(1, now, now + seconds), POLICY)
        now += seconds + used_s
    return after_request(load, now, POLICY)


def choose(
    load: ConsumerLoad,
    *,
    needs_thread: bool = False,
    has_thread: bool = False,
    is_requested: bool = False,
) -> ThreadAction:
    return choose_thread(
        load,
        POLICY,
        needs_thread=needs_thread,
        has_thread=has_thread,
        is_requested=is_requested,
    )


IDLE = load_after([(0.001, 0.0001)] * 100)
BUSY = load_after([(0.001, 0.001)] * 100)


def test_a_consumer_that_only_takes_elements_gets_no_thread():
    assert choose(IDLE) is ThreadAction.KEEP


def test_nothing_is_known_before_the_first_block():
    assert choose(load_after([])) is ThreadAction.KEEP


def test_a_consumer_that_is_busy_gets_a_thread_after_the_first_block():
    assert choose(load_after([(0.001, 0.01)])) is ThreadAction.START


def test_one_long_pause_among_many_blocks_does_not_make_a_busy_consumer():
    assert choose(load_after([(0.001, 0.0)] * 20 + [(0.001, 60.0)])) is ThreadAction.KEEP


def test_a_stage_that_needs_a_thread_gets_one():
    assert choose(IDLE, needs_thread=True) is ThreadAction.START
    assert choose(IDLE, needs_thread=True, has_thread=True) is ThreadAction.START


def test_a_thread_that_pays_off_stays():
    assert choose(BUSY, has_thread=True) is ThreadAction.START


def test_a_thread_that_does_not_pay_off_ends():
    assert choose(IDLE, has_thread=True) is ThreadAction.STOP


def test_a_thread_does_not_end_after_a_few_blocks():
    blocks = [(0.001, 0.0)] * POLICY.stop_after_blocks
    assert choose(load_after([*blocks, (0.001, 0.0)]), has_thread=True) is ThreadAction.STOP
    assert choose(load_after(blocks[:-1]), has_thread=True) is ThreadAction.START


def test_a_thread_whose_block_would_be_lost_does_not_end():
    slow = load_after([(10 * POLICY.max_stop_block_s, 0.0)] * 100)
    assert choose(slow, has_thread=True) is ThreadAction.START


def test_a_thread_that_the_user_requested_does_not_end():
    assert choose(IDLE, has_thread=True, is_requested=True) is ThreadAction.START


@given(share=st.floats(0.0, 3.0))
def test_a_thread_does_not_come_and_go(share: float):
    """A consumer that is busy for a constant share of the time of a block."""
    workload = Workload(cost=lambda positions: Cost(cpu_s=1e-4), consumer_s=share * 1e-4, noise=0.0)
    simulator = Simulator(workload, [INLINE])
    changes = 0
    for _ in range(50):
        before = simulator.has_thread
        simulator.run(0.02)
        changes += simulator.has_thread != before

    assert changes <= 1
    if abs(share - POLICY.busy_share) > 0.05:
        assert simulator.has_thread == (share > POLICY.busy_share)


@pytest.mark.parametrize("busy_first", [True, False])
def test_a_change_of_the_consumer_is_noticed_soon(busy_first: bool):
    before, after = [(0.001, 0.002)] * 1000, [(0.001, 0.0)] * 150
    blocks = before + after if busy_first else after + before[:50]
    action = choose(load_after(blocks), has_thread=busy_first)
    assert action is (ThreadAction.STOP if busy_first else ThreadAction.START)
