"""Whether code that runs holds the interpreter lock."""

import sys
import threading
import time
from collections.abc import Callable

import pytest

from gristmill._engine.tuning.interpreter_probe import InterpreterProbe, is_lock_held
from gristmill._engine.tuning.policy import TuningPolicy

POLICY = TuningPolicy()


def compute() -> None:
    sum(range(1000))


def release() -> None:
    threading.Event().wait(0.0001)


@pytest.mark.parametrize(("step", "expected"), [(compute, True), (release, False)])
def test_it_finds_out_beside_the_code(step: Callable[[], None], expected: bool):
    found: list[bool | None] = []
    deadline = time.monotonic() + 20.0
    for _ in range(3):  # on a busy machine a single one may be wrong
        probe = InterpreterProbe(POLICY)
        while probe.holds_lock is None and time.monotonic() < deadline:
            step()
        found.append(probe.holds_lock)
    assert expected in found


def test_it_is_not_known_before_the_last_sleep():
    probe = InterpreterProbe(TuningPolicy(probe_sleeps=3, probe_sleep_s=0.05))
    assert probe.holds_lock is None


def test_without_sleeps_the_lock_counts_as_released_and_no_thread_starts():
    before = threading.active_count()
    assert InterpreterProbe(TuningPolicy(probe_sleeps=0)).holds_lock is False
    assert threading.active_count() == before


def test_the_median_of_the_sleeps_counts():
    interval_s = sys.getswitchinterval()
    assert not is_lock_held([0.0002, 0.0002, 2 * interval_s], interval_s, POLICY)
    assert is_lock_held([0.0002, interval_s, 2 * interval_s], interval_s, POLICY)
