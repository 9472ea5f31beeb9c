"""Actor as the parent handles it: start, tasks, end."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias, final

from gristmill._engine.executors.pools.open_job import Probe
from gristmill._engine.executors.pools.task import Task
from gristmill._engine.executors.ray.events import EventQueue
from gristmill._engine.executors.ray.messages import BlockHeader
from gristmill._metrics.stats import WorkerStats

_MAX_CALLS = 3
"""Tasks that an actor has at a time. Others can still be given to another actor."""

EventKind: TypeAlias = Literal["started", "header", "data", "probe"]


class Event(NamedTuple):
    """A call of an actor has returned, or failed."""

    worker: "RayWorker"
    kind: EventKind
    task: int
    """The number of the task; -1 for the start."""
    future: Any
    arrived_at: float
    """When it did, by `time.perf_counter`. The consumer may be busy then, and handles it later."""


@final
@dataclass
class WorkerCounts:
    """What the actors with one number have done on one node.

    >>> counts = WorkerCounts("worker 0", "10.0.0.2", busy_s=1.5, in_flight_s=2.0)
    >>> counts.as_stats().network_wait_s
    0.5
    """

    name: str = ""
    node: str = ""
    num_blocks: int = 0
    output_bytes: int = 0
    busy_s: float = 0.0
    in_flight_s: float = 0.0
    """Time in which they had something to compute or to transfer."""
    num_restarts: int = 0

    def as_stats(self) -> WorkerStats:
        """Return it as users see it."""
        return WorkerStats(
            name=self.name,
            node=self.node,
            num_blocks=self.num_blocks,
            output_bytes=self.output_bytes,
            busy_s=self.busy_s,
            network_wait_s=max(0.0, self.in_flight_s - self.busy_s),
            num_restarts=self.num_restarts,
        )


@final
class PoolCounts:
    """What the actors of a pool have done, by their number and node."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str], WorkerCounts] = {}
        self._failed_starts = Counter[int]()
        """How many actors died before they had started, by number. Their nodes are unknown."""

    def of(self, worker: "RayWorker") -> WorkerCounts:
        """Return the counts of an actor that has started."""
        key = worker.number, worker.node
        counts = self._counts.setdefault(key, WorkerCounts(worker.name, worker.node))
        counts.num_restarts += self._failed_starts.pop(worker.number, 0)
        return counts

    def add_restart(self, dead: "RayWorker", *, was_ready: bool) -> None:
        """Count that an actor is replaced."""
        if was_ready:
            dead.counts.num_restarts += 1
        else:
            self._failed_starts[dead.number] += 1

    def as_stats(self) -> tuple[WorkerStats, ...]:
        """Return them as users see them. Any thread may call this."""
        return tuple(counts.as_stats() for counts in list(self._counts.values()))


@final
@dataclass
class _Call:
    """A call that computes a task."""

    task: Task
    header_ref: Any
    data_ref: Any
    began_at: float
    """When the task was sent, or the transfer of its buffers requested."""
    header: BlockHeader | None = None
    """Its header, while the buffers are being transferred."""


@final
@dataclass(eq=False)
class RayWorker:
    """One actor, and the calls of it that have not returned."""

    number: int
    name: str
    handle: Any
    events: EventQueue[Event]
    avoids_until: float | None = None
    """Until when it must not run on a node that was lost, if it must not. It may wait for that."""
    created_at: float = field(default_factory=time.monotonic)
    is_released: bool = False
    """Whether it was ended while nothing used it."""
    counts: WorkerCounts = field(default_factory=WorkerCounts)
    node_id: str = ""
    node: str = ""
    unsent: deque[Task] = field(default_factory=deque[Task])
    """Tasks that wait until a suspect one is done."""
    is_probing: bool = False
    """Whether the call for a record or an element has not returned."""
    _probes: Iterator[Probe] | None = None
    """The remaining records and elements of the task that is computed one by one."""
    _calls: dict[int, _Call] = field(default_factory=dict[int, _Call])
    _counted_until: float = 0.0
    """Until when the time in which there were calls is counted."""
    _clock_offset_s: float = math.inf
    """How far the clock here is ahead of that of the actor, and how long the fastest reply took."""

    def load(self, call: Any) -> None:
        """Wait for the call by which the actor loads the plans."""
        self._report(call, "started", -1)

    def send_next(self, probes_of: Callable[[Task], Iterator[Probe]]) -> Probe | None:
        """Send what waits, as far as the actor may have it.

        A task that has killed an actor is sent alone, after each of its records and elements.

        Args:
            probes_of: Returns the records and elements of a task.

        Returns:
            The record or element that was sent, if one was.
        """
        while self.unsent and not self.is_probing:
            task = self.unsent[0]
            if len(self._calls) >= (1 if task.tries else _MAX_CALLS):
                return None
            if task.tries:
                self._probes = self._probes or probes_of(task)
                probe = None if task.is_cancelled else next(self._probes, None)
                if probe is not None:
                    self._send_probe(task, probe)
                    return probe
                self._probes = None
            self._send_task(self.unsent.popleft())
        return None

    def _send_task(self, task: Task) -> None:
        positions = task.positions
        header_ref, data_ref = self.handle.compute.options(num_returns=2).remote(
            task.job, positions.start, positions.stop
        )
        self._calls[task.number] = _Call(task, header_ref, data_ref, time.perf_counter())
        self._report(header_ref, "header", task.number)

    def _send_probe(self, task: Task, probe: Probe) -> None:
        self.is_probing = True
        call = self.handle.probe.remote(task.job, probe.position, probe.record)
        self._report(call, "probe", task.number)

    def receive(self, number: int, header: BlockHeader, arrived_at: float) -> BlockHeader:
        """Count a block that was computed, and return its header with times by the clock here."""
        counts, times = self.counts, header.times
        counts.num_blocks += 1
        counts.output_bytes += header.num_bytes + len(header.content or b"")
        counts.busy_s += times.busy_s
        self._count_in_flight(self._calls[number].began_at, arrived_at)
        self._clock_offset_s = min(self._clock_offset_s, arrived_at - times.ended_at)
        return replace(header, times=times.shifted(self._clock_offset_s))

    def fetch(self, number: int, header: BlockHeader) -> None:
        """Transfer the buffers of a block to this machine."""
        call = self._calls[number]
        call.header, call.began_at = header, time.perf_counter()
        self._report(call.data_ref, "data", number)

    def end_fetch(self, number: int, arrived_at: float) -> BlockHeader:
        """Note that the buffers of a block have arrived, or are lost; return its header."""
        call = self._calls[number]
        assert call.header is not None
        self._count_in_flight(call.began_at, arrived_at)
        return call.header

    def task_of(self, number: int) -> Task:
        """Return the task of a call."""
        return self._calls[number].task

    def data_of(self, number: int) -> Any:
        """Return the reference to the buffers of a block."""
        return self._calls[number].data_ref

    def finish(self, number: int) -> None:
        """Forget a call, and with it the object in the store."""
        del self._calls[number]

    def _count_in_flight(self, began_at: float, ended_at: float) -> None:
        """Count the time between two moments, but for what is counted already."""
        self.counts.in_flight_s += max(0.0, ended_at - max(began_at, self._counted_until))
        self._counted_until = max(self._counted_until, ended_at)

    @property
    def num_calls(self) -> int:
        """How many tasks it was sent and has not finished."""
        return len(self._calls)

    def take_back(self, max_count: int) -> int:
        """Take back tasks from the end of the queue that were not sent; return how many."""
        first = 1 if self._probes is not None else 0  # that one is being probed
        count = min(max_count, max(0, len(self.unsent) - first))
        for _ in range(count):
            self.unsent.pop()
        return count

    def _report(self, call: Any, kind: EventKind, task: int) -> None:
        """Report the end of a call, and its time, to the queue of events, from a thread of Ray."""
        events, worker = self.events, self

        def report(future: Any) -> None:
            events.put(Event(worker, kind, task, future, time.perf_counter()))

        call.future().add_done_callback(report)
