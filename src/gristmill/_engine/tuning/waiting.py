"""Tell code that waits, for a disk or a network, from code that computes."""

import resource
import time
from typing import final

WAITING_SHARE = 0.5
WAITING_SECONDS = 0.0002
"""What takes longer, and is mostly waiting, is worth threads."""

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

    def __init__(self) -> None:
        self._pauses = _num_pauses()
        self._cpu_seconds = time.thread_time()
        self._start = time.perf_counter()
        self.waiting_share = 0.0
        self.seconds = 0.0

    def stop(self) -> None:
        """Take the times."""
        self.seconds = time.perf_counter() - self._start
        cpu_seconds = time.thread_time() - self._cpu_seconds
        # On a busy machine a thread is also kept waiting for a core: that is no pause of its own.
        if _THIS_THREAD is None or _num_pauses() > self._pauses:
            self.waiting_share = 1 - cpu_seconds / max(self.seconds, 1e-9)

    @property
    def has_waited(self) -> bool:
        """Whether it was mostly waiting, and long enough to matter."""
        return self.waiting_share > WAITING_SHARE and self.seconds > WAITING_SECONDS


def _num_pauses() -> int:
    """Count how often this thread let go of its core by itself."""
    return 0 if _THIS_THREAD is None else resource.getrusage(_THIS_THREAD).ru_nvcsw
