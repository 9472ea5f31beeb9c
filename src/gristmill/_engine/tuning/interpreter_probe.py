"""Find out whether the code that runs holds the interpreter lock.

A thread that wakes up needs the lock before it can read the clock. If the code that runs holds it,
each sleep takes longer by the switch interval (5 ms); if it releases the lock, by almost nothing.
So a few sleeps show, at the cost of a few switches, whether threads can help at all.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import final

from gristmill._base.threads.background import Background
from gristmill._engine.tuning.policy import TuningPolicy

_is_gil_enabled: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)


def has_interpreter_lock(is_enabled: Callable[[], bool] | None = _is_gil_enabled) -> bool:
    """Return whether threads of this interpreter take turns. Without a lock, they replace workers.

    >>> has_interpreter_lock(lambda: False)
    False

    Args:
        is_enabled: Returns it; `None` before Python 3.13, which always has the lock.
    """
    return is_enabled is None or is_enabled()


@final
class InterpreterProbe:
    """A thread that sleeps a few times beside the code in question."""

    def __init__(self, policy: TuningPolicy) -> None:
        self._policy = policy
        self._sleeps: list[float] = []
        if policy.probe_sleeps:
            Background(_sleep, (self._sleeps, policy), name="gristmill-probe").start()

    @property
    def holds_lock(self) -> bool | None:
        """Whether the code mostly held the interpreter lock; `None` while that is not known."""
        if len(self._sleeps) < self._policy.probe_sleeps:
            return None
        return is_lock_held(self._sleeps, sys.getswitchinterval(), self._policy)


def is_lock_held(sleeps: Sequence[float], switch_interval_s: float, policy: TuningPolicy) -> bool:
    """Return whether code that ran beside some sleeps held the interpreter lock.

    >>> is_lock_held([0.0003, 0.0002, 0.006], 0.005, TuningPolicy())
    False
    >>> is_lock_held([0.0051, 0.0002, 0.006], 0.005, TuningPolicy())
    True

    Args:
        sleeps: Seconds that each sleep took.
        switch_interval_s: Seconds after which a thread that waits for the lock gets it.
        policy: The tuning policy.
    """
    return bool(sleeps) and statistics.median(sleeps) > policy.held_share * switch_interval_s


def _sleep(sleeps: list[float], policy: TuningPolicy) -> None:
    for _ in range(policy.probe_sleeps):
        start = time.perf_counter()
        time.sleep(policy.probe_sleep_s)
        sleeps.append(time.perf_counter() - start)
