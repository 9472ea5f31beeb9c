"""Timeline: which thread or worker did what and when, for the last blocks of a run."""

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias, final

from gristmill._metrics.step_time import StepTime

MAX_BLOCKS = 2048
"""Blocks that a timeline keeps. With five steps, each takes about 1 kB."""

WAIT, PLACE, HOSTS, UNFINISHED = -1, -2, -3, -4
"""The numbers of what is not a step of the pipeline."""

_NAMES = {
    WAIT: "wait for data",
    PLACE: "place on devices",
    HOSTS: "wait for other hosts",
    UNFINISHED: "unfinished block",
}

TRANSFER_NAME = "copy into shared memory"


class Track(NamedTuple):
    """A thread of this process, or a worker."""

    worker: str
    """The name of the worker; empty for this process."""
    thread: str
    """The name of the thread; empty for the main thread of a worker."""
    number: int
    """What the system calls it: the number of the process of a worker, or that of a thread."""

    def of_worker(self, worker: str, process: int) -> "Track":
        """Return the track of a thread of a worker, as its parent records it.

        >>> Track("", "MainThread", 12345).of_worker("worker 0", 7)
        Track(worker='worker 0', thread='', number=7)
        """
        if self.thread == "MainThread":
            return Track(worker, "", process)
        return Track(worker, self.thread, self.number)

    @property
    def name(self) -> str:
        """What a view calls it.

        >>> Track("worker 0", "grain-prefetch_1", 7).name
        'worker 0, grain-prefetch_1'
        """
        return ", ".join([part for part in (self.worker, self.thread) if part])


class Work(NamedTuple):
    """What one thread did, one step after the other."""

    track: Track
    began_at: float
    """When it began: `time.perf_counter()` of this machine."""
    step_times: tuple[StepTime, ...]
    first_step: int = 0
    """The number of the first of the steps."""
    transfer_s: float = 0.0
    """Time in which a worker copied the result into shared memory, after the steps."""

    def of_steps(self, first: int) -> "Work":
        """Return the same work on steps of which the one that it calls 0 is number `first`."""
        if self.first_step < 0 or not first:
            return self
        return self._replace(first_step=self.first_step + first)


_Entry: TypeAlias = tuple[Track, float, float]
"""A wait for data, from when to when. Creating a `Work` takes five times as long."""


def _as_work(track: Track, began_at: float, ended_at: float) -> Work:
    return Work(track, began_at, (StepTime(ended_at - began_at),), WAIT)


def unfinished(track: Track, elapsed_s: float) -> Work:
    """Return the work on a block that a thread or a worker has not finished yet.

    Args:
        track: The thread or the worker.
        elapsed_s: When it began, in seconds before now.
    """
    now = time.perf_counter()
    return Work(track, now - elapsed_s, (StepTime(elapsed_s),), UNFINISHED)


class StepSpan(NamedTuple):
    """One step of one block, on one track."""

    track: Track
    name: str
    began_at: float
    elapsed_s: float
    cpu_s: float
    waited_s: float


DEVICE_TRACK = Track("", "device transfer", 0)
"""Where batches are placed on devices, in whatever thread."""

_local = threading.local()


def current_track() -> Track:
    """Return the track of the current thread.

    >>> current_track().worker
    ''
    """
    try:
        return _local.track
    except AttributeError:
        thread = threading.current_thread()
        _local.track = Track("", thread.name, threading.get_ident())
        return _local.track


@final
class Timeline:
    """The last blocks of one iterator. Any thread may add to it.

    >>> timeline = Timeline(["reading", "Map f"])
    >>> timeline.add(Work(current_track(), 10.0, (StepTime(1.0), StepTime(2.0))))
    >>> [(span.name, span.began_at) for span in timeline.spans()]
    [('reading', 10.0), ('Map f', 11.0)]

    Args:
        names: The names of the steps by number. The caller may add further ones.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = names
        self._works: deque[Work | _Entry] = deque(maxlen=MAX_BLOCKS)
        self._pending: list[weakref.WeakMethod[Callable[[], Sequence[Work]]]] = []

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: Work) -> None:
        """Add what a thread did."""
        self._works.append(work)

    def add_step(
        self,
        number: int,
        step_time: StepTime,
        *,
        ended_at: float,
        track: Track | None = None,
    ) -> None:
        """Add one step that ended at some moment, by default on the track of this thread."""
        self._works.append(
            Work(track or current_track(), ended_at - step_time[0], (step_time,), number)
        )

    def add_wait(self, began_at: float, ended_at: float) -> None:
        """Add that the current thread waited for data."""
        self._works.append((current_track(), began_at, ended_at))

    def include(self, pending: Callable[[], Sequence[Work]]) -> None:
        """Include what a method returns, as long as its object exists.

        Args:
            pending: Returns the work on blocks that the consumer has not taken yet.
        """
        self._pending = [one for one in self._pending if one() is not None]
        self._pending.append(weakref.WeakMethod(pending))

    @property
    def works(self) -> list[Work]:
        """What was added, and what is pending."""
        works = self._works.copy()  # other threads may add in the meantime
        added = [work if isinstance(work, Work) else _as_work(*work) for work in works]
        methods = [method for one in self._pending if (method := one()) is not None]
        return [*added, *(work for method in methods for work in method())]

    def spans(self) -> list[StepSpan]:
        """Return the steps of the last blocks one by one."""
        return [span for work in self.works for span in self._spans_of(work)]

    def steps_of(self, work: Work) -> Iterable[tuple[str, float]]:
        """Yield the names of the steps of a block, and the seconds that they took."""
        return ((span.name, span.elapsed_s) for span in self._spans_of(work))

    def _spans_of(self, work: Work) -> Iterable[StepSpan]:
        at = work.began_at
        for number, step in enumerate(work.step_times, start=work.first_step):
            if step.elapsed_s:
                name = _NAMES[number] if number < 0 else self._names[number]
                yield StepSpan(work.track, name, at, step.elapsed_s, step.cpu_s, step.waited_s)
                at += step.elapsed_s
        if work.transfer_s:
            yield StepSpan(work.track, TRANSFER_NAME, at, work.transfer_s, work.transfer_s, 0.0)


def all_spans(timelines: Iterable[Timeline]) -> list[StepSpan]:
    """Return the spans of several timelines."""
    return [span for timeline in timelines for span in timeline.spans()]
