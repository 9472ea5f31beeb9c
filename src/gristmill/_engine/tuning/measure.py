"""What one block took, measured once and read by all controllers."""

import gc
import resource
import time
from typing import NamedTuple, final

from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy


class BlockStats(NamedTuple):
    """What one block took, as far as it was measured where a decision is made.

    An executor measures what it took to compute a range. A stage or stream whose consumer may wait
    measures when a block was requested and when it was ready. A tuple, as there is one per block.
    """

    num_elements: int
    requested_at: float = 0.0
    """When the consumer requested the block, in seconds of a clock."""
    ready_at: float = 0.0
    """When the consumer got it."""
    num_positions: int = 0
    """Positions of the range that was computed."""
    wall_s: float = 0.0
    """Seconds that computing it took, wherever that was."""
    cpu_s: float = 0.0
    """Seconds of these in which the thread had a core."""
    waited_s: float = 0.0
    """Seconds of these in which the thread waited for a disk or a network. Waiting for the
    interpreter lock is neither computing nor waiting, as the block would not wait if it were
    alone."""
    num_collections: int = 0
    """Garbage collections that ran while it was computed, if only this block can have caused
    them."""
    num_bytes: int = 0
    """Bytes of shared memory that it occupies."""

    @property
    def serial_s(self) -> float:
        """Seconds that computing the block would have taken inline."""
        return self.cpu_s + self.waited_s


def computed_stats(
    *,
    num_elements: int,
    num_positions: int,
    wall_s: float,
    has_waited: bool,
    num_collections: int = 0,
    num_bytes: int = 0,
) -> BlockStats:
    """Return the statistics of a block that had a thread and an interpreter to itself."""
    return BlockStats(
        num_elements=num_elements,
        num_positions=num_positions,
        wall_s=wall_s,
        cpu_s=0.0 if has_waited else wall_s,
        waited_s=wall_s if has_waited else 0.0,
        num_collections=num_collections,
        num_bytes=num_bytes,
    )


def unexplained_wait_s(*, wall_s: float, cpu_s: float, num_concurrent: int) -> float:
    """Return the seconds that a thread waited for anything but the interpreter lock.

    Threads that hold the lock take turns, so each computes for 1 / `num_concurrent` of the time.
    Waiting beyond that has another reason.

    >>> unexplained_wait_s(wall_s=0.08, cpu_s=0.02, num_concurrent=4)  # they took turns
    0.0
    >>> unexplained_wait_s(wall_s=0.08, cpu_s=0.005, num_concurrent=4)
    0.06

    Args:
        wall_s: Seconds that a block took.
        cpu_s: Seconds of these in which the thread had a core.
        num_concurrent: Number of threads that computed blocks at that time.
    """
    return max(0.0, wall_s - num_concurrent * cpu_s)


def has_mostly_waited(stats: BlockStats, policy: TuningPolicy) -> bool:
    """Return whether a block mostly waited, and for long enough to matter.

    >>> has_mostly_waited(BlockStats(1, wall_s=0.01, waited_s=0.009), TuningPolicy())
    True
    """
    return is_mostly_waiting(stats.wall_s, stats.waited_s, policy)


def is_mostly_waiting(wall_s: float, waited_s: float, policy: TuningPolicy) -> bool:
    """Return whether most of some time was waiting, and it was long enough to matter."""
    return waited_s > policy.waiting_share * wall_s and wall_s > policy.min_waiting_s


def count_collections() -> int:
    """Return how many garbage collections have run in this process."""
    return gc.get_stats()[0]["collections"]


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
        self.began_at = time.perf_counter()
        self.wall_s = 0.0
        self.cpu_s = 0.0
        """Seconds of `wall_s` in which the thread computed. All of them if it never paused: on a
        busy machine it also waits for a core, which is not a pause of its own."""

    def stop(self) -> None:
        """Take the times."""
        self.wall_s = self.cpu_s = time.perf_counter() - self.began_at
        if _THIS_THREAD is None or _num_pauses() > self._num_pauses:
            self.cpu_s = min(time.thread_time() - self._cpu_start, self.wall_s)

    @property
    def has_waited(self) -> bool:
        """Whether the time was mostly waiting, and long enough to matter."""
        return is_mostly_waiting(self.wall_s, self.wall_s - self.cpu_s, self._policy)


def _num_pauses() -> int:
    """Return how often this thread has released its core voluntarily."""
    return 0 if _THIS_THREAD is None else resource.getrusage(_THIS_THREAD).ru_nvcsw
