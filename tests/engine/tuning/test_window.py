"""Elements per second are measured once a strategy has settled and warmed up."""

import pytest

from gristmill._engine.tuning.measure import BlockStats
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._engine.tuning.window import (
    MeasuringWindow,
    add_block,
    next_window,
    window_after_switch,
)

POLICY = TuningPolicy(warm_up_s=1.0, window_s=4.0, window_blocks=3)


def with_blocks(
    window: MeasuringWindow, *times: tuple[float, float], is_settled: bool = True
) -> MeasuringWindow:
    for requested_at, ready_at in times:
        stats = BlockStats(10, requested_at, ready_at, cpu_s=0.25, waited_s=0.25)
        window = add_block(window, stats, POLICY, is_settled=is_settled)
    return window


def test_blocks_and_waiting_are_added_up():
    window = with_blocks(next_window(window_after_switch(5.0)), (5.0, 6.0), (7.0, 9.0))

    assert (window.seconds, window.num_elements, window.num_blocks) == (4.0, 20, 2)
    assert window.rate == 5.0
    assert window.pulling_share == 0.75
    assert window.serial_s_per_element == 0.05
    assert window.waited_s == 0.5


def test_after_a_change_the_first_block_and_the_warm_up_do_not_count():
    window = with_blocks(window_after_switch(0.0), (0.0, 0.1), (0.1, 1.2), (1.2, 2.0))

    assert (window.num_elements, window.num_all) == (10, 30)
    assert window.seconds == 1.0


def test_a_first_block_longer_than_the_warm_up_is_enough():
    window = with_blocks(window_after_switch(0.0), (0.0, 3.0), (3.0, 4.0))
    assert (window.num_elements, window.seconds) == (10, 1.0)


def test_nothing_counts_before_the_strategy_before_has_settled():
    window = with_blocks(window_after_switch(0.0), (0.0, 2.0), (2.0, 4.0), is_settled=False)
    assert (window.num_all, window.num_since_settled, window.seconds) == (20, 0, 0.0)

    window = with_blocks(window, (4.0, 5.0), (5.0, 6.0))

    assert (window.num_all, window.num_since_settled, window.num_elements) == (40, 20, 10)
    assert (window.seconds_since_begin, window.seconds_since_settled) == (6.0, 2.0)


def test_blocks_without_elements_take_time_but_do_not_count_as_blocks():
    window = next_window(window_after_switch(0.0))
    for number in range(10):
        stats = BlockStats(number % 5 == 4, float(number), number + 1.0)
        window = add_block(window, stats, POLICY)
    assert (window.num_blocks, window.seconds) == (2, 10.0)
    assert not window.is_full(POLICY)


@pytest.mark.parametrize(("num_blocks", "seconds"), [(2, 10.0), (3, 3.9), (3, 4.0)])
def test_a_window_is_full_after_enough_blocks_and_time(num_blocks: int, seconds: float):
    each = seconds / num_blocks
    times = [(each * number, each * (number + 1)) for number in range(num_blocks)]
    window = with_blocks(next_window(window_after_switch(0.0)), *times)
    assert window.is_full(POLICY) == (num_blocks >= 3 and seconds >= 4.0)


def test_windows_on_one_strategy_follow_each_other_without_a_gap():
    window = with_blocks(next_window(window_after_switch(0.0)), (0.0, 4.0))
    assert with_blocks(next_window(window), (4.0, 5.0)).seconds == 1.0


def test_an_empty_window_has_no_rate():
    window = window_after_switch(0.0)
    assert (window.rate, window.pulling_share, window.serial_s_per_element) == (0.0, 0.0, 0.0)
