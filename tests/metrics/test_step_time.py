"""The time of a step is divided by what its thread did."""

import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._metrics import step_time
from gristmill._metrics.step_time import (
    MIN_STEP_S,
    LockLatency,
    begin_step,
    divide_time,
    end_step,
    read_thread,
)

seconds = st.floats(0.0, 100.0)


@given(
    cpu_s=seconds,
    paused_s=seconds,
    num_pauses=st.integers(0, 10_000),
    num_preemptions=st.integers(0, 10_000),
    lock_latency_s=seconds,
)
def test_the_parts_are_positive_and_add_up(
    cpu_s: float, paused_s: float, num_pauses: int, num_preemptions: int, lock_latency_s: float
):
    time = divide_time(
        cpu_s + paused_s,
        cpu_s,
        num_pauses=num_pauses,
        num_preemptions=num_preemptions,
        lock_latency_s=lock_latency_s,
        switch_interval_s=0.005,
    )

    core_wait_s = time.elapsed_s - time.cpu_s - time.waited_s - time.interpreter_wait_s
    assert time.cpu_s == cpu_s
    assert min(time.waited_s, time.interpreter_wait_s, core_wait_s + 1e-9) >= 0.0


def test_a_thread_that_never_paused_waited_for_a_core():
    time = divide_time(
        3.0,
        1.0,
        num_pauses=0,
        num_preemptions=4,
        lock_latency_s=1.0,
        switch_interval_s=0.005,
    )

    assert (time.waited_s, time.interpreter_wait_s) == (0.0, 0.0)


def test_a_pause_is_at_most_one_switch_interval_of_waiting_for_the_lock():
    time = divide_time(
        10.0,
        0.0,
        num_pauses=100,
        num_preemptions=0,
        lock_latency_s=1e9,
        switch_interval_s=0.005,
    )

    assert 0.499 < time.interpreter_wait_s <= 0.5
    assert time.waited_s == 10.0 - time.interpreter_wait_s


def test_a_step_that_sleeps_waits_and_the_next_one_is_measured_by_itself():
    begin = read_thread()
    threading.Event().wait(0.02)
    slept, reading = end_step(begin)
    begin = begin_step(reading)
    until = time.thread_time() + 0.01
    while time.thread_time() < until:
        pass
    computed, _ = end_step(begin)

    assert slept.waited_s > 0.5 * slept.elapsed_s
    assert slept.cpu_s < 0.01 <= computed.cpu_s


def test_short_steps_count_as_computing():
    begin = read_thread()
    step, reading = end_step(begin)
    while step.elapsed_s > MIN_STEP_S:  # a pause of the operating system
        begin = read_thread()
        step, reading = end_step(begin)

    assert step.cpu_s == step.elapsed_s
    assert reading.cpu_s == begin.cpu_s + step.elapsed_s


def test_a_reading_of_long_ago_is_not_the_start_of_a_step():
    old = read_thread()._replace(at=time.perf_counter() - 1.0)

    assert begin_step(old).at > old.at
    assert begin_step(None).at > old.at


def test_the_latency_of_the_lock_is_that_of_other_threads():
    stop = threading.Event()
    started = threading.Barrier(3)

    def hold_lock() -> None:
        started.wait()
        while not stop.is_set():
            sum(range(2000))

    threads = [threading.Thread(target=hold_lock) for _ in range(2)]
    for thread in threads:
        thread.start()
    started.wait()
    latencies = [LockLatency().measure(time.perf_counter()) for _ in range(9)]
    stop.set()
    for thread in threads:
        thread.join()

    assert sorted(latencies)[4] > 0.0005


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count no pauses of a thread")
def test_waiting_for_a_core_is_no_latency_of_the_lock():
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        latencies = [LockLatency().measure(time.perf_counter()) for _ in range(99)]
    finally:
        for other in others:
            other.kill()
            other.wait()

    assert sorted(latencies)[49] == 0.0


def test_a_measurement_that_took_long_is_not_repeated_soon(monkeypatch: pytest.MonkeyPatch):
    clock = Clock(per_yield_s=0.004)
    monkeypatch.setattr(step_time, "time", clock)
    monkeypatch.setattr(step_time, "_count_switches", lambda: (2 * clock.num_yields, 0))
    latency = LockLatency()
    for _ in range(1000):
        clock.now += 0.001
        latency.measure(clock.now)

    assert 10 <= clock.num_yields <= 15  # one in 0.08 s
    assert latency.measure(clock.now) == pytest.approx(0.004)


class Clock:
    """A clock that only moves when it is advanced, or when the lock is released."""

    def __init__(self, per_yield_s: float) -> None:
        self.now = 1000.0
        self.num_yields = 0
        self._per_yield_s = per_yield_s

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self.num_yields += 1
        self.now += self._per_yield_s
