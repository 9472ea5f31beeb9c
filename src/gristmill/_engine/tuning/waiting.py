"""Distinguish code that waits, for a disk or a network, from code that computes."""

import resource
import time
from typing import final

from gristmill._engine.tuning.measure import is_mostly_waiting
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy

_THIS_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)


@final
class Stopwatch:
    """Measures what this thread does from now on.

    >>> watch = Stopwatch()
    >>> time.sleep(0.01)
    >>> watch.stop()
    >>> watch.has_waited
    True
    """

    def __init__(self, policy: TuningPolicy = DEFAULT_POLICY) -> None:
        self._policy = policy
        self._num_pauses = _num_pauses()
        self._cpu_start = time.thread_time()
        self._start = time.perf_counter()
        self.wall_s = 0.0
        self.cpu_s = 0.0
        """Seconds of `wall_s` in which the thread computed. All of them if it never paused: on a
        busy machine it also waits for a core, which is not a pause of its own."""

    def stop(self) -> None:
        """Take the times."""
        self.wall_s = self.cpu_s = time.perf_counter() - self._start
        if _THIS_THREAD is None or _num_pauses() > self._num_pauses:
            self.cpu_s = min(time.thread_time() - self._cpu_start, self.wall_s)

    @property
    def has_waited(self) -> bool:
        """Whether the time was mostly waiting, and long enough to matter."""
        return is_mostly_waiting(self.wall_s, self.wall_s - self.cpu_s, self._policy)


def _num_pauses() -> int:
    """Return how often this thread has given up its core by itself."""
    return 0 if _THIS_THREAD is None else resource.getrusage(_THIS_THREAD).ru_nvcsw
