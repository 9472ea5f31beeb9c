"""The history of a run: a bounded number of samples of its statistics over time."""

from collections import deque
from typing import NamedTuple, final

from gristmill._metrics.memory import own_memory, worker_memory

INTERVAL_S = 0.1
"""The time between two samples at first. It doubles each time there are `MAX_SAMPLES`."""

MAX_SAMPLES = 240

RECENT_INTERVAL_S = 0.5
"""The time between two samples of the last minute."""

RECENT_S = 60.0


class Sample(NamedTuple):
    """What a run had done at one moment. All numbers are totals since its start."""

    at_s: float
    """Time since the first request."""
    num_elements: int
    waited_s: float
    memory_bytes: int
    """Memory of this process, including what it has mapped of shared memory; 0 if unknown."""
    worker_memory_bytes: int = 0
    """Memory of its worker processes, without shared memory. It counts those of all loaders."""


@final
class History:
    """Samples of a run from its start to now, at equal distances, and of its last minute.

    Adding costs one comparison, except when a sample is due. One thread adds.

    >>> history = History()
    >>> history.add(10.0, 10.5, 3, 0.25)
    >>> [sample[:3] for sample in history.samples]
    [(0.5, 3, 0.25)]
    """

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._interval_s = INTERVAL_S
        self._next_s = 0.0
        self._next_recent_s = 0.0
        self._due_s = 0.0
        self._recent: deque[Sample] = deque(maxlen=1 + round(RECENT_S / RECENT_INTERVAL_S))

    def add(self, start_s: float, now_s: float, num_elements: int, waited_s: float) -> None:
        """Add a sample if one is due.

        Args:
            start_s: The time of the first request.
            now_s: The present time.
            num_elements: The number of elements so far.
            waited_s: How long they were waited for.
        """
        if now_s < self._due_s:
            return
        memory = own_memory(), worker_memory()
        sample = Sample(now_s - start_s, num_elements, waited_s, *memory)
        if now_s >= self._next_s:
            self._next_s = now_s + self._interval_s
            samples = [*self._samples, sample]
            if len(samples) >= MAX_SAMPLES:
                samples = samples[1::2]
                self._interval_s *= 2.0
            self._samples = samples  # in one assignment: another thread may read it
        if now_s >= self._next_recent_s:
            self._next_recent_s = now_s + RECENT_INTERVAL_S
            self._recent.append(sample)
        self._due_s = min(self._next_s, self._next_recent_s)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples, in order."""
        return tuple(self._samples)

    @property
    def recent(self) -> tuple[Sample, ...]:
        """The samples of the last minute, in order."""
        samples = self._recent.copy()  # another thread may add in the meantime
        return tuple([one for one in samples if one.at_s >= samples[-1].at_s - RECENT_S])
