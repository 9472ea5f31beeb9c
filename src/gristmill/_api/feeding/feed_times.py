"""What a feed took: its thread, and the consumer that waits for it."""

import time
from typing import final

from gristmill._metrics.counters import WaitCounts
from gristmill._metrics.history import History
from gristmill._metrics.step_time import StepTime
from gristmill._metrics.timeline import DEVICE_TRACK, HOSTS, PLACE, Timeline


@final
class FeedTimes:
    """What the background thread of a feed took. Written by that thread only."""

    def __init__(self) -> None:
        self.place_s = 0.0
        """Time in which batches were placed on devices."""
        self.host_wait_s = 0.0
        """Time in which other processes were waited for."""
        self.timeline = Timeline()

    def count_placing(self, started_at_s: float) -> None:
        """Count a batch that has just been placed."""
        now_s = time.perf_counter()
        self.place_s += now_s - started_at_s
        step = StepTime(now_s - started_at_s)
        self.timeline.add_step(PLACE, step, ended_at=now_s, track=DEVICE_TRACK)

    def count_agreement(self, started_at_s: float) -> None:
        """Count a step that the processes have just agreed on."""
        now_s = time.perf_counter()
        self.host_wait_s += now_s - started_at_s
        self.timeline.add_step(HOSTS, StepTime(now_s - started_at_s), ended_at=now_s)


@final
class WaitClock:
    """Measures how long the consumer waits for batches."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.num_batches = 0
        self.waited_s = 0.0
        self.first_wait_s = 0.0
        self._start_s: float | None = None
        self._end_s = 0.0
        self.history = History()
        self.waits = WaitCounts()

    def count(self, requested_at_s: float) -> None:
        now_s = time.perf_counter()
        if self._start_s is None:
            self._start_s = requested_at_s
            self.first_wait_s = now_s - requested_at_s
        self._end_s = now_s
        self.waited_s += now_s - requested_at_s
        self.num_batches += 1
        self.waits.add(now_s - requested_at_s)
        self.history.add(self._start_s, now_s, self.num_batches, self.waited_s)
        self._timeline.add_wait(requested_at_s, now_s)

    @property
    def elapsed_s(self) -> float:
        return 0.0 if self._start_s is None else self._end_s - self._start_s
