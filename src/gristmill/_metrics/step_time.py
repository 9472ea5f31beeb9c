"""What one step took: time that computes, that waits, and that waits for the interpreter.

A step that takes longer than the CPU time of its thread was off the core: it waited for a disk or a
network, for the interpreter lock, or for a core. The system counts how often the thread released
its core voluntarily (a *pause*) and how often it was taken away (a *preemption*), not for what. So:

- A thread that waits for the lock wakes up after each switch interval (5 ms), so each pause is at
  most that much waiting for the lock. How much it is on average follows from the *lock latency*:
  the time it takes to get the lock back after releasing it, which is measured now and then.
- A preemption is some milliseconds of waiting for a core, in proportion to the CPU time.
- The rest is waiting for a disk, a network or another thread.

Only steps that take longer than a switch of threads are measured this way. Shorter ones count as
computing, so that blocks of a few microseconds cost no more than a look at the clock for each step.
"""

import itertools
import resource
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple, final

from gristmill._base.padding_count import take_padding


class StepTime(NamedTuple):
    """Seconds of one thread in a step, divided by what it did, and counts. A tuple, one per block.

    What is left of `elapsed_s` is time in which the thread was ready to compute, but other threads
    or processes had all cores.
    """

    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    """Seconds in which the thread had a core."""
    waited_s: float = 0.0
    """Seconds in which it waited for a disk, a network, or anything else."""
    interpreter_wait_s: float = 0.0
    """Seconds in which it waited for the interpreter lock."""
    num_values: int = 0
    """Values of the arrays that the step padded."""
    num_padding: int = 0
    """Those of them that are padding."""
    num_records: int = 0
    """Records that the step read from a source."""
    num_bytes: int = 0
    """Bytes of the arrays and strings in them, estimated from one of each block."""

    def minus(self, other: "StepTime") -> "StepTime":
        """Return the difference of two times, the second of which is part of the first.

        They were measured one by one, so that a difference may be a little less than 0.
        """
        cpu_s, waited_s, interpreter_wait_s = (
            max(0.0, self[number] - other[number]) for number in (1, 2, 3)
        )
        elapsed_s = max(self[0] - other[0], cpu_s + waited_s + interpreter_wait_s)
        return StepTime(elapsed_s, cpu_s, waited_s, interpreter_wait_s)

    def plus(self, other: "StepTime") -> "StepTime":
        """Return the sum of two times."""
        return StepTime(
            self[0] + other[0],
            self[1] + other[1],
            self[2] + other[2],
            self[3] + other[3],
            self[4] + other[4],
            self[5] + other[5],
            self[6] + other[6],
            self[7] + other[7],
        )


def computing(seconds: float) -> StepTime:
    """Return the time of a step that had a core all the time.

    >>> computing(2.0).cpu_s
    2.0
    """
    return StepTime(seconds, seconds)


def add_times(times: Iterable[StepTime]) -> StepTime:
    """Add up the times of a step.

    >>> add_times([computing(1.0), StepTime(2.0, waited_s=2.0)])[:4]
    (3.0, 1.0, 2.0, 0.0)
    """
    return StepTime(*map(sum, zip(*times, strict=True)))


MIN_STEP_S = 0.0002
"""Shorter steps count as computing: the system calls to measure more take 1 microsecond."""

MIN_PAUSED_SHARE = 0.1
"""A step that was off the core for less of its time waited for a core: it hardly paused."""

PREEMPTION_S = 0.004
"""Seconds without a core that one preemption explains: a time slice of Linux."""

MAX_CORE_WAIT = 8.0
"""Seconds without a core per second with one. A thread that hardly computes needs no core."""

MAX_READING_AGE_S = 0.00005
"""An older reading is not the start of a step: the thread may have done something else."""

LATENCY_INTERVAL_S = 0.01
"""Minimum time between two measurements of the lock latency: each makes threads take turns."""

MAX_LATENCY_SHARE = 0.05
"""Share of the time that measuring the lock latency may take: where other programs want the core,
releasing the lock costs a time slice of them."""

LATENCY_WEIGHT = 0.25
"""Weight of the last measurement in the average lock latency."""

MAX_LATENCY_INTERVAL_S = 0.1
"""Maximum time between two measurements, as long as steps are measured."""

MAX_LATENCY_AGE_S = 0.5
"""An older average is forgotten: other code runs by now. Beside other programs, it takes some
measurements to know the latency, as another thread may lack a core to take the lock."""

_THIS_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)
_PAUSES = itertools.count()


class ThreadReading(NamedTuple):
    """The clocks and counts of one thread at one moment."""

    at: float
    cpu_s: float
    num_pauses: int
    num_preemptions: int


def read_thread() -> ThreadReading:
    """Return the clocks and counts of this thread."""
    num_pauses, num_preemptions = _count_switches()
    return ThreadReading(time.perf_counter(), time.thread_time(), num_pauses, num_preemptions)


def begin_step(last: ThreadReading | None) -> ThreadReading:
    """Return `last`, the reading at the end of the step before, unless it is too old."""
    take_padding()  # what was padded outside of steps
    if last is None or time.perf_counter() - last.at > MAX_READING_AGE_S:
        return read_thread()
    return last


def end_step(begin: ThreadReading) -> tuple[StepTime, ThreadReading]:
    """Return what a step took since `begin`, and the reading at its end."""
    step, reading = _measure(begin)
    padding = take_padding()
    if padding is None:
        return step, reading
    return step._replace(num_values=padding.num_values, num_padding=padding.num_padding), reading


def _measure(begin: ThreadReading) -> tuple[StepTime, ThreadReading]:
    now = time.perf_counter()
    elapsed_s = now - begin.at
    if elapsed_s < MIN_STEP_S:
        end = ThreadReading(now, begin.cpu_s + elapsed_s, begin.num_pauses, begin.num_preemptions)
        return computing(elapsed_s), end
    cpu_now = time.thread_time()
    cpu_s = min(max(0.0, cpu_now - begin.cpu_s), elapsed_s)
    if elapsed_s - cpu_s < MIN_PAUSED_SHARE * elapsed_s:
        end = ThreadReading(now, cpu_now, begin.num_pauses, begin.num_preemptions)
        return StepTime(elapsed_s, cpu_s), end
    num_pauses, num_preemptions = _count_switches()
    step = divide_time(
        elapsed_s,
        cpu_s,
        num_pauses=num_pauses - begin.num_pauses,
        num_preemptions=num_preemptions - begin.num_preemptions,
        lock_latency_s=_LATENCY.measure(now),
        switch_interval_s=sys.getswitchinterval(),
    )
    # Not the clock from before: measuring the latency of the lock is not part of the next step.
    return step, ThreadReading(time.perf_counter(), time.thread_time(), *_count_switches())


def divide_time(
    elapsed_s: float,
    cpu_s: float,
    *,
    num_pauses: int,
    num_preemptions: int,
    lock_latency_s: float,
    switch_interval_s: float,
) -> StepTime:
    """Divide the time of a step by what its thread did.

    >>> divide_time(1.0, 0.25, num_pauses=150, num_preemptions=0, lock_latency_s=10.0,
    ...     switch_interval_s=0.005).interpreter_wait_s > 0.74
    True
    >>> divide_time(1.0, 0.25, num_pauses=150, num_preemptions=0, lock_latency_s=0.0,
    ...     switch_interval_s=0.005).waited_s
    0.75

    Args:
        elapsed_s: Seconds that the step took.
        cpu_s: Seconds of these in which the thread had a core.
        num_pauses: How often the thread released its core voluntarily.
        num_preemptions: How often its core was taken away.
        lock_latency_s: Seconds that it takes to get the interpreter lock.
        switch_interval_s: Seconds after which a thread that waits for the lock wakes up.
    """
    paused_s = elapsed_s - cpu_s
    if not num_pauses:
        return StepTime(elapsed_s, cpu_s)
    # A wait for the lock of length x is 1 + x / interval pauses, so a pause is at most an interval.
    per_pause_s = lock_latency_s / (1.0 + lock_latency_s / switch_interval_s)
    interpreter_wait_s = min(paused_s, num_pauses * per_pause_s)
    core_wait_s = min(
        paused_s - interpreter_wait_s, num_preemptions * PREEMPTION_S, MAX_CORE_WAIT * cpu_s
    )
    waited_s = paused_s - interpreter_wait_s - core_wait_s
    return StepTime(elapsed_s, cpu_s, waited_s, interpreter_wait_s)


@final
class LockLatency:
    """The average time that it takes to get the interpreter lock.

    Threads share it without a lock of its own. If two of them measure at the same time, one of the
    measurements is lost, which does no harm.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._last_s = 0.0
        self._measured_at = 0.0

    def measure(self, now: float) -> float:
        """Return the average, after another measurement if the last one is some time ago."""
        age_s = now - self._measured_at
        interval_s = min(self._last_s / MAX_LATENCY_SHARE, MAX_LATENCY_INTERVAL_S)
        if age_s > max(LATENCY_INTERVAL_S, interval_s):
            self._measured_at = now
            num_pauses, _ = _count_switches()
            start = time.perf_counter()
            time.sleep(0)  # releases the lock, and gets it back
            self._last_s = time.perf_counter() - start
            num_pauses = _count_switches()[0] - num_pauses
            # The sleep is a pause by itself, and long if other programs have the cores.
            latency_s = self._last_s if num_pauses > 1 or _THIS_THREAD is None else 0.0
            weight = LATENCY_WEIGHT if age_s < MAX_LATENCY_AGE_S else 1.0
            self._seconds += weight * (latency_s - self._seconds)
        return self._seconds


_LATENCY = LockLatency()
"""The lock is that of the process."""


def _count_switches() -> tuple[int, int]:
    """Return how often this thread released its core, and how often it was taken away."""
    if _THIS_THREAD is None:  # not counted: each step that was off the core paused once
        return next(_PAUSES), 0
    usage = resource.getrusage(_THIS_THREAD)
    return usage.ru_nvcsw, usage.ru_nivcsw
