"""When the last windows of a stream show bursts."""

import pytest

from gristmill._engine.tuning.history import (
    has_bursts,
    largest_loss_s,
    longer_history,
    relative_cost,
    total_speed,
)
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._engine.tuning.strategy import Speed, SpeedHistory, Strategy

POLICY = TuningPolicy()
INLINE, THREADS = Strategy("inline", 1), Strategy("threads", 4)


def history(*costs_s: float, strategy: Strategy = INLINE) -> SpeedHistory:
    """Return windows of 0.1 s with elements that take this many seconds each."""
    return tuple(Speed(strategy, 0.1, round(0.1 / cost_s), 0.1, 0.0) for cost_s in costs_s)


@pytest.mark.parametrize(
    "costs_s",
    [
        (0.001, 0.01, 0.001),
        (0.01, 0.001, 0.01),
        (0.001, 0.0014, 0.0019, 0.0026, 0.0019, 0.0014, 0.001),
    ],
)
def test_a_rise_and_a_fall_are_a_burst(costs_s: tuple[float, ...]):
    assert has_bursts(history(*costs_s), POLICY)


@pytest.mark.parametrize(
    "costs_s",
    [(), (0.001,), (0.01, 0.01, 0.001, 0.001), (0.001, 0.0013, 0.001), (0.001, 0.003, 0.009)],
)
def test_a_lasting_change_and_noise_are_none(costs_s: tuple[float, ...]):
    assert not has_bursts(history(*costs_s), POLICY)


def test_elements_that_are_slower_in_threads_are_no_burst():
    windows = history(0.001, 0.001), history(0.015, strategy=THREADS), history(0.001)
    assert not has_bursts(sum(windows, ()), POLICY)


def test_a_fall_in_threads_and_a_rise_inline_are_a_burst():
    windows = history(0.01, 0.001, strategy=THREADS), history(0.001, 0.01)
    assert has_bursts(sum(windows, ()), POLICY)


def test_bursts_are_forgotten_with_their_windows():
    windows = history(0.001, 0.01, 0.001)
    for speed in history(0.001) * (POLICY.history_windows - 3):
        windows = longer_history(windows, speed, POLICY)
    assert has_bursts(windows, POLICY)

    for speed in history(0.001) * 3:
        windows = longer_history(windows, speed, POLICY)
    assert not has_bursts(windows, POLICY)
    assert len(windows) == POLICY.history_windows


def test_a_window_without_elements_is_not_kept():
    assert longer_history((), Speed(INLINE, 0.1, 0, 0.1, 0.0), POLICY) == ()


def test_speeds_of_other_strategies_do_not_count():
    windows = (*history(0.001, 0.01), *history(0.1, strategy=THREADS))
    total = total_speed(windows, INLINE)
    assert (total.num_elements, total.seconds) == (110, pytest.approx(0.2))
    assert largest_loss_s(windows, INLINE) == pytest.approx(0.1 - 10 / 550)


def test_the_cheapest_windows_report_what_threads_cost():
    windows = (*history(0.001, 0.01), *history(0.02, 0.003, strategy=THREADS))
    assert relative_cost(windows, THREADS, INLINE) == pytest.approx(3.0, rel=0.05)
    assert relative_cost(windows, INLINE, THREADS) == pytest.approx(1 / 3, rel=0.05)
    assert relative_cost(windows, INLINE, Strategy("processes", 2)) == 1.0
    assert relative_cost(windows[:2], THREADS, INLINE) is None
