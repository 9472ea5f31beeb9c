"""Actor as the parent handles it: start, tasks, end."""

import math
import time
from collections import deque
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


@final
@dataclass
class WorkerCounts:
    """What the actors with one number have done on one node."""

    name: str = ""
    node: str = ""
    num_blocks: int = 0
    output_bytes: int = 0
    busy_s: float = 0.0
    network_wait_s: float = 0.0
    num_restarts: int = 0

    def as_stats(self) -> WorkerStats:
        """Return it as users see it."""
        return WorkerStats(**vars(self))


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
    is_released: bool = False
    """Whether it was ended while nothing used it."""
    counts: WorkerCounts = field(default_factory=WorkerCounts)
    node_id: str = ""
    node: str = ""
    headers: dict[int, BlockHeader] = field(default_factory=dict[int, BlockHeader])
    """Headers of the blocks that are being transferred, by task."""
    unsent: deque[Task] = field(default_factory=deque[Task])
    """Tasks that wait until a suspect one is done."""
    is_probing: bool = False
    """Whether the call for a record or an element has not returned."""
    _probes: Iterator[Probe] | None = None
    """The remaining records and elements of the task that is computed one by one."""
    _calls: dict[int, tuple[Any, Any]] = field(default_factory=dict[int, tuple[Any, Any]])
    _last_reply_at: float = 0.0
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
        if not self._calls:
            self._last_reply_at = time.monotonic()
        positions = task.positions
        call = self.handle.compute.options(num_returns=2).remote(
            task.job, positions.start, positions.stop
        )
        self._calls[task.number] = call
        self._report(call[0], "header", task.number)

    def _send_probe(self, task: Task, probe: Probe) -> None:
        self.is_probing = True
        call = self.handle.probe.remote(task.job, probe.position, probe.record)
        self._report(call, "probe", task.number)

    def fetch(self, number: int, header: BlockHeader) -> None:
        """Transfer the buffers of a block to this machine."""
        self.headers[number] = header
        self._report(self._calls[number][1], "data", number)

    def data_of(self, number: int) -> Any:
        """Return the reference to the buffers of a block."""
        return self._calls[number][1]

    def finish(self, number: int) -> BlockHeader | None:
        """Forget a call, and with it the object in the store; return its header if known."""
        self._calls.pop(number, None)
        return self.headers.pop(number, None)

    def count(self, header: BlockHeader) -> BlockHeader:
        """Count a block that has arrived, and return its header with times by the clock here."""
        now = time.monotonic()
        counts, busy_s = self.counts, header.times.busy_s
        counts.num_blocks += 1
        counts.output_bytes += header.num_bytes
        counts.busy_s += busy_s
        counts.network_wait_s += max(0.0, now - self._last_reply_at - busy_s)
        self._last_reply_at = now
        offset_s = time.perf_counter() - header.times.ended_at
        self._clock_offset_s = min(self._clock_offset_s, offset_s)
        return replace(header, times=header.times.shifted(self._clock_offset_s))

    def take_back(self, max_count: int) -> int:
        """Take back tasks from the end of the queue that were not sent; return how many."""
        first = 1 if self._probes is not None else 0  # that one is being probed
        count = min(max_count, max(0, len(self.unsent) - first))
        for _ in range(count):
            self.unsent.pop()
        return count

    def _report(self, call: Any, kind: EventKind, task: int) -> None:
        """Report the end of a call to the queue of events, from a thread of Ray."""
        events, worker = self.events, self

        def report(future: Any) -> None:
            events.put(Event(worker, kind, task, future))

        call.future().add_done_callback(report)
