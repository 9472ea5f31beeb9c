"""Counters that the engine updates once per block, never per element.

Each counter is written by one thread at a time (the one that pulls the stage, or the consumer), so
none needs a lock.
"""

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, cast, final

import numpy as np

from gristmill._metrics.history import History
from gristmill._metrics.profiler import mark_steps
from gristmill._metrics.stats import RecentSkip, Stats, StepStats, WorkerStats, add_stats
from gristmill._metrics.step_time import StepTime
from gristmill._metrics.timeline import MAX_BLOCKS, Timeline, Work
from gristmill.types import AnyArray, Element

NUM_BOUNDS = 40
"""The largest bound is 2**39 nanoseconds: nine minutes."""


@final
class WaitCounts:
    """Counts waits by the first power of two, in nanoseconds, that is not shorter.

    >>> waits = WaitCounts()
    >>> waits.add(0.001, num_more=3)
    >>> sum(waits.counts), waits.counts[0], waits.counts[20]
    (4, 3, 1)
    """

    def __init__(self) -> None:
        self._counts = [0] * (NUM_BOUNDS + 1)

    def add(self, wait_s: float, *, num_more: int = 0) -> None:
        """Count a wait, and elements that were ready by then and needed none."""
        self._counts[min(NUM_BOUNDS, int(1e9 * wait_s).bit_length())] += 1
        self._counts[0] += num_more

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of waits up to each of `bounds_ns`, without shorter ones, and of others."""
        return tuple(self._counts)


def bounds_ns() -> list[float]:
    """Return the largest wait of each count but the last, in nanoseconds.

    >>> bounds_ns()[:3]
    [1.0, 2.0, 4.0]
    """
    return [float(2**exponent) for exponent in range(NUM_BOUNDS)]


class SharedMemory(Protocol):
    """Shared memory that a pool of workers has mapped."""

    @property
    def shared_bytes(self) -> int:
        """How many bytes are mapped now."""
        ...


SharedMemories: TypeAlias = weakref.WeakValueDictionary[int, SharedMemory]
"""Shared memory by its id. It is not kept alive: it ends with the workers and the last array."""


def _count_bytes(several: Iterable[SharedMemories]) -> int:
    """Return how many bytes are mapped, each shared memory counted once."""
    found = [ref() for memories in several for ref in memories.valuerefs()]
    by_id = {id(memory): memory for memory in found if memory is not None}
    return sum([memory.shared_bytes for memory in by_id.values()])


@final
class StepClock:
    """What one step took so far.

    >>> clock = StepClock("Map f")
    >>> clock.add(StepTime(0.5, cpu_s=0.5))
    >>> clock.stats().cpu_s
    0.5
    """

    __slots__ = (
        "_cpu_s",
        "_elapsed_s",
        "_in_order_s",
        "_interpreter_wait_s",
        "_num_bytes",
        "_num_padding",
        "_num_records",
        "_num_values",
        "_number",
        "_timeline",
        "_waited_s",
        "name",
    )

    def __init__(self, name: str, number: int = 0, timeline: Timeline | None = None) -> None:
        self.name = name
        self._number = number
        self._timeline = timeline
        self._elapsed_s = self._cpu_s = self._waited_s = self._interpreter_wait_s = 0.0
        self._in_order_s = 0.0
        self._num_values = self._num_padding = self._num_records = self._num_bytes = 0

    def add(
        self,
        step_time: StepTime,
        *,
        is_in_order: bool = True,
        span: tuple[float, float] | None = None,
    ) -> None:
        """Add what the step took for a block.

        Args:
            step_time: What it took.
            is_in_order: Whether it ran above the cut, on one block after the other.
            span: When it began and the seconds from then to its end, if other steps ran in
                between. By default it ended now.
        """
        elapsed_s, cpu_s, waited_s, interpreter_wait_s, num_values, num_padding, *read = step_time
        self._elapsed_s += elapsed_s
        self._cpu_s += cpu_s
        self._waited_s += waited_s
        self._interpreter_wait_s += interpreter_wait_s
        if num_values:
            self._num_values += num_values
            self._num_padding += num_padding
        if read[0]:
            self._num_records += read[0]
            self._num_bytes += read[1]
        if is_in_order:
            self._in_order_s += elapsed_s
            if self._timeline is not None and elapsed_s:
                self._record(step_time, span)

    def _record(self, step_time: StepTime, span: tuple[float, float] | None) -> None:
        assert self._timeline is not None
        if span is not None:
            began_at, elapsed_s = span
            step_time, ended_at = step_time._replace(elapsed_s=elapsed_s), began_at + elapsed_s
        else:
            ended_at = time.perf_counter()
        self._timeline.add_step(self._number, step_time, ended_at=ended_at)

    @property
    def time(self) -> StepTime:
        """The sum of what was added."""
        return StepTime(
            self._elapsed_s,
            self._cpu_s,
            self._waited_s,
            self._interpreter_wait_s,
            self._num_values,
            self._num_padding,
            self._num_records,
            self._num_bytes,
        )

    def stats(self) -> StepStats:
        """Return the current values."""
        return StepStats(
            name=self.name,
            elapsed_s=self._elapsed_s,
            cpu_s=self._cpu_s,
            waited_s=self._waited_s,
            interpreter_wait_s=self._interpreter_wait_s,
            in_order_s=self._in_order_s,
            num_values=self._num_values,
            num_padding=self._num_padding,
            num_records=self._num_records,
            num_bytes=self._num_bytes,
        )


@final
class Counters:
    """Counters of one iterator.

    >>> counters = Counters(["reading", "Map f"])
    >>> counters.count_steps((StepTime(0.5, 0.5), StepTime(0.25, 0.25)))
    >>> counters.stats().steps[1].elapsed_s
    0.25
    """

    def __init__(self, step_names: Sequence[str] = ()) -> None:
        self._step_names: list[str] = []
        self.timeline = Timeline(self._step_names)
        """What the last blocks took, and where and when."""
        self.steps: list[StepClock] = []
        self._num_open_steps = 0
        self.add_steps(step_names)
        self.executor = "inline"
        self.num_threads = 0
        self.max_threads = 0
        self.num_workers = 0
        self.worker_start = ""
        self.missing_workers = ""
        self.restarts = 0
        self.num_positions = 0
        self.blocks_ready = 0
        self.blocks_under_way = 0
        self.shared_memories: SharedMemories = weakref.WeakValueDictionary()
        self.describe_workers: Callable[[], tuple[WorkerStats, ...]] = tuple
        self.skipped = 0
        self.recent_skips: tuple[RecentSkip, ...] = ()
        self._elements = 0
        self._num_bytes = 0
        self._waiting: Sequence[Element] = ()
        self._bytes_each = 0
        self._waited_s = 0.0
        self._first_wait_s = 0.0
        self._busy_s = 0.0
        self._transfer_s = 0.0
        self._first_requested_at: float | None = None
        self._last_handed_out_at = 0.0
        self._handed_out_to = 0
        self._handed_out_at_cpu_s = self._consumer_cpu_s = 0.0
        self._num_blocks = 0
        self._sum_ready = 0
        self._waits = WaitCounts()
        self._history = History()

    def add_steps(self, names: Sequence[str]) -> int:
        """Add clocks for more steps, and return the number of the first one."""
        first = self._num_open_steps
        self._num_open_steps += len(names)
        if self._num_open_steps > len(self.steps):
            self._step_names += names
            self.steps += [
                StepClock(name, number, self.timeline)
                for number, name in enumerate(names, start=first)
            ]
        return first

    def reopen(self) -> None:
        """Let the same steps be added again: their clocks continue."""
        self._num_open_steps = 0

    def watch_memory(self, memory: SharedMemory) -> None:
        """Count what is mapped there, also once the workers are idle."""
        self.shared_memories[id(memory)] = memory

    def count_steps(self, step_times: Sequence[StepTime], *, first: int = 0) -> None:
        """Add what a block took in each step below the cut, starting with step `first`."""
        for number, step_time in enumerate(step_times, start=first):
            self.steps[number].add(step_time, is_in_order=False)

    def record_work(self, works: Sequence[Work], *, first: int = 0) -> None:
        """Record which threads or workers computed a block below the cut, and when.

        Args:
            works: What they did.
            first: The number of the step that they call 0.
        """
        for work in works:
            numbered = work.of_steps(first)
            self.timeline.add(numbered)
            if work.track.worker:
                mark_steps(work.track.name, self.timeline.steps_of(numbered))

    def count_work(self, busy_s: float, transfer_s: float) -> None:
        """Add the seconds for which a thread or a worker was busy with a block.

        Args:
            busy_s: The seconds.
            transfer_s: Those of them in which a worker copied the block into shared memory.
        """
        self._busy_s += busy_s
        self._transfer_s += transfer_s

    def count_request(self) -> None:
        """Count what the caller computed since it got the last block, if it is the same thread."""
        if self._handed_out_to == threading.get_ident():
            self._consumer_cpu_s += time.thread_time() - self._handed_out_at_cpu_s

    def count_block(self, rows: Sequence[Element], *, asked_at: float) -> None:
        """Count a block whose elements the consumer pops from `rows` one by one."""
        now = time.perf_counter()
        if self._first_requested_at is None:
            self._first_requested_at = asked_at
            self._first_wait_s = now - asked_at
        self._last_handed_out_at = now
        self._waited_s += now - asked_at
        self._waiting = rows
        self._bytes_each = num_bytes(rows[0]) if rows else 0
        self._history.add(self._first_requested_at, now, self._elements, self._waited_s)
        self.timeline.add_wait(asked_at, now)
        self._num_blocks += 1
        self._sum_ready += self.blocks_ready
        self._waits.add(now - asked_at, num_more=len(rows) - 1)
        self._elements += len(rows)
        self._num_bytes += self._bytes_each * len(rows)
        self._handed_out_to = threading.get_ident()
        self._handed_out_at_cpu_s = time.thread_time()

    def take_back(self) -> None:
        """Stop counting elements that the consumer has not taken and never will."""
        self._elements -= len(self._waiting)
        self._num_bytes -= self._bytes_each * len(self._waiting)
        self._waiting = ()

    def stats(self) -> Stats:
        """Return the current values."""
        started_at = self._first_requested_at
        return Stats(
            num_elements=self._elements - len(self._waiting),
            output_bytes=self._num_bytes - self._bytes_each * len(self._waiting),
            elapsed_s=0.0 if started_at is None else self._last_handed_out_at - started_at,
            waited_s=self._waited_s,
            first_wait_s=self._first_wait_s,
            consumer_cpu_s=self._consumer_cpu_s,
            steps=tuple([step.stats() for step in self.steps]),
            busy_s=self._busy_s,
            transfer_s=self._transfer_s,
            num_skipped=self.skipped,
            recent_skips=self.recent_skips,
            executor=self.executor,
            num_threads=self.num_threads,
            max_threads=self.max_threads,
            num_workers=self.num_workers,
            worker_start=self.worker_start,
            missing_workers=self.missing_workers,
            num_restarts=self.restarts,
            num_blocks=self._num_blocks,
            num_positions=self.num_positions,
            num_blocks_ready=self.blocks_ready,
            sum_blocks_ready=self._sum_ready,
            wait_counts=self._waits.counts,
            num_blocks_in_flight=self.blocks_under_way,
            shared_memory_bytes=_count_bytes([self.shared_memories]),
            history=self._history.samples,
            recent=self._history.recent,
            workers=self.describe_workers(),
        )


def num_bytes(element: Element) -> int:
    """Return the number of bytes in the arrays and strings of an element.

    >>> num_bytes({"x": np.zeros(4, np.float32), "name": "four"})
    20
    """
    if isinstance(element, np.ndarray | np.generic):
        return cast("AnyArray", element).nbytes
    if isinstance(element, str | bytes | bytearray):
        return len(element)
    if isinstance(element, dict):
        return sum(map(num_bytes, cast("dict[object, Element]", element).values()))
    if isinstance(element, list | tuple):
        return sum(map(num_bytes, cast("Sequence[Element]", element)))
    return 0


@final
class StatsTotal:
    """Adds up the counters of iterators, including those that no longer exist.

    >>> class Iterator: ...
    >>> total, iterator, counters = StatsTotal(), Iterator(), Counters([])
    >>> total.watch(iterator, counters)
    >>> counters.skipped = 3
    >>> del iterator
    >>> total.stats().num_skipped
    3
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._live: dict[int, Counters] = {}
        self._owners: weakref.WeakValueDictionary[int, object] = weakref.WeakValueDictionary()
        self._past = Stats()
        self._past_memories: SharedMemories = weakref.WeakValueDictionary()
        self._past_timelines: deque[Timeline] = deque()

    def watch(self, owner: object, counters: Counters) -> None:
        """Include `counters` as long as `owner` exists, and their last values afterwards."""
        number = next(self._numbers)
        self._live[number] = counters
        self._owners[number] = owner
        weakref.finalize(owner, self._retire, number).atexit = False

    def owners(self) -> list[object]:
        """Return the iterators that exist."""
        return list({id(owner): owner for owner in self._owners.values()}.values())

    def stats(self) -> Stats:
        """Return the sum over all iterators. Shared memory is what is mapped now."""
        live = list(self._live.values())
        memories = [self._past_memories, *[counters.shared_memories for counters in live]]
        return replace(
            add_stats([self._past, *[counters.stats() for counters in live]]),
            shared_memory_bytes=_count_bytes(memories),
        )

    def timelines(self) -> list[Timeline]:
        """Return the last blocks of the iterators, those that no longer exist first."""
        live = [counters.timeline for counters in list(self._live.values())]
        return [*self._past_timelines, *live]

    def __reduce__(self) -> tuple[object, ...]:
        return StatsTotal, ()  # a copy in another process counts its own iterators

    def _retire(self, number: int) -> None:
        counters = self._live.pop(number)
        self._past = add_stats([self._past, counters.stats()])
        self._past_memories.update(counters.shared_memories)
        kept = self._past_timelines
        kept.append(counters.timeline)
        while len(kept) > 1 and sum(map(len, kept)) > MAX_BLOCKS:
            kept.popleft()
