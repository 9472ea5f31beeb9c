"""Shared pool as one of its readers sees it: calls of a broker, which several processes make.

To the executor, each call that is open at a time is a worker.
"""

import contextlib
import os
import pickle
import sys
import time
import uuid
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple, final

from gristmill._engine.blocks.block import Block, BlockResult, join_results
from gristmill._engine.executors.pools.base import WorkerPool
from gristmill._engine.executors.pools.job import Job
from gristmill._engine.executors.pools.task import Task, no_holder
from gristmill._engine.executors.ray.cluster.deaths import cause_of_death
from gristmill._engine.executors.ray.cluster.monitor import ClusterMonitor
from gristmill._engine.executors.ray.cluster.runtime_env import for_actor
from gristmill._engine.executors.ray.events import POLL_S, REPLACE_POLL_S, EventQueue
from gristmill._engine.executors.ray.messages import BlockHeader
from gristmill._engine.executors.ray.missing import computed_here
from gristmill._engine.executors.ray.reply import ActorReply
from gristmill._engine.executors.ray.shared.broker import (
    Attachment,
    Broker,
    Opening,
    SharedPart,
)
from gristmill._engine.executors.ray.shared.description import describe_jobs, difference
from gristmill._engine.executors.ray.shared.heart import Heart
from gristmill._engine.executors.ray.stored_plan import StoredPlan, is_stored
from gristmill._engine.executors.serialization.packed_sources import PackedSource
from gristmill._engine.executors.serialization.plan_payload import PickledPlan
from gristmill._engine.executors.serialization.remote_error import load_error
from gristmill._engine.executors.serialization.serialize import adopt_keys, names_of
from gristmill._metrics.stats import WorkerStats
from gristmill._metrics.timeline import Work
from gristmill.errors import PlanError, WorkerError
from gristmill.options import RayOptions

_NAMESPACE = "gristmill"
_READS = "reads"
_MAX_READS = 1000
"""Calls for blocks that the broker accepts at a time; further ones wait."""

_MAX_CALLS = 16
"""The same for all other calls, which never wait behind calls for blocks."""


class _Event(NamedTuple):
    """A call of the broker has returned, or the buffers of a part have arrived."""

    kind: Literal["read", "data"]
    worker: int
    task: Task
    part: int
    future: Any
    arrived_at: float
    """When, by `time.perf_counter`."""


@final
class _Arrival:
    """A block whose parts arrive one by one."""

    find_holder = staticmethod(no_holder)

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts: list[ActorReply | BaseException | None] = [None] * len(parts)

    @property
    def is_complete(self) -> bool:
        """Whether all parts are there."""
        return all(not isinstance(part, ActorReply) or part.has_arrived for part in self.parts)

    @property
    def num_bytes(self) -> int:
        """Bytes of the object store that the parts occupy."""
        return sum(part.num_bytes for part in self.parts if isinstance(part, ActorReply))

    @property
    def work(self) -> Sequence[Work]:
        """What the actors did, as the parent records it."""
        parts = [part for part in self.parts if isinstance(part, ActorReply)]
        return [work for part in parts for work in part.work]

    def decode(self) -> BlockResult:
        """Return the block result, in memory of its own."""
        results: list[BlockResult] = []
        for part in self.parts:
            if isinstance(part, ActorReply):
                results.append(part.decode())
            elif part is not None:
                results.append(BlockResult(Block.empty(), part))
            if results and results[-1].error is not None:
                break
        return results[0] if len(results) == 1 else join_results(results)


@final
class SharedPool(WorkerPool):
    """The workers of a broker, which computes each block once for all readers.

    Args:
        ray: The module, connected to the cluster.
        plan: The plans, which the broker gets if this is the first reader.
        key: What the keeper finds the pool by.
        options: The name of the pool. The other options count if this is the first reader.
        jobs: The plans.
    """

    def __init__(
        self, ray: Any, plan: StoredPlan, key: Hashable, options: RayOptions, jobs: Sequence[Job]
    ) -> None:
        super().__init__(key, options)
        self._ray = ray
        self._ray_options = options
        self._plan = plan
        self._description = describe_jobs(jobs)
        suffix = " in order" if any(job.cut.in_order for job in jobs) else ""
        self._name = f"gristmill pool {options.shared_pool}{suffix}"
        self._broker: Any = None
        self._attachment: Attachment | None = None
        """What the broker answered, while this is one of its readers."""
        self._lost_at: float | None = None
        """When a broker was lost that has not been replaced yet."""
        self._num_workers = 0
        self._events: EventQueue[_Event] = EventQueue()
        self._arrivals: dict[int, _Arrival] = {}
        self._heart = Heart(ray, uuid.uuid4().hex)
        self._monitor = ClusterMonitor(ray, {}, beat=self._heart.beat)

    @property
    def is_usable(self) -> bool:
        return super().is_usable and self._monitor.is_connected

    @property
    def has_lost_workers(self) -> bool:
        return False

    def holds(self, plan: PickledPlan) -> bool:
        return is_stored(self._ray, self._plan, plan)

    @property
    def packed_sources(self) -> Sequence[PackedSource]:
        return self._plan.sources

    @property
    def num_workers(self) -> int:
        return max(1, self._num_workers)

    @property
    def grid(self) -> int | None:
        self.start()
        self.wait_until_ready(self._attach_timeout_s)
        return None if self._attachment is None else self._attachment.grid

    @property
    def _attach_timeout_s(self) -> float:
        return 6 * self._ray_options.start_timeout_s

    def start(self) -> None:
        if not self._monitor.is_started:
            self._monitor.start()
            weakref.finalize(self, self._monitor.stop)
        is_missing = self._attachment is None and self._lost_at is None
        if is_missing and self._failure is None and self._monitor.is_connected:
            self._attach()

    def _attach(self) -> None:
        """Join the pool, or start it."""
        ray, options = self._ray, self._ray_options
        timeout_s = self._attach_timeout_s
        opening = Opening(
            options=options,
            pytrees=self._plan.pytrees,
            class_names=names_of(self._plan.classes),
            path=[entry for entry in sys.path if entry],
        )
        self._broker = self._find_broker()
        call = self._broker.attach.remote(
            self._heart.reader, self._description, [self._plan.payload], pickle.dumps(opening)
        )
        try:
            answer: bytes | str = ray.get(call, timeout=timeout_s)
        except ray.exceptions.RayActorError as error:  # such as one that was about to end
            self._lose_broker(cause_of_death(error), was_ready=False)
        except ray.exceptions.GetTimeoutError:
            self._failure = WorkerError(
                f"The shared pool {options.shared_pool!r} has not answered for {timeout_s:g} s. "
                "Wait longer with `start_timeout_s`."
            )
        except ray.exceptions.RayTaskError as error:
            cause: BaseException = error.cause
            cause.add_note(f"While the shared pool {options.shared_pool!r} was opened.")
            self._failure = cause
        else:
            self._join(answer)

    def _find_broker(self) -> Any:
        """Return the broker of the pool, which is started if there is none."""
        ray, options = self._ray, self._ray_options
        node_id = ray.get_runtime_context().get_node_id()
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=True)
        return (
            ray.remote(concurrency_groups={_READS: _MAX_READS})(Broker)
            .options(
                name=self._name,
                namespace=_NAMESPACE,
                get_if_exists=True,
                lifetime="detached",
                num_cpus=0,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=_MAX_CALLS,
                scheduling_strategy=affinity,
                runtime_env=for_actor(options.runtime_env),
            )
            .remote(self._description)
        )

    def _join(self, answer: bytes | str) -> None:
        """Read from the broker that has answered, if it serves the same pipeline."""
        if isinstance(answer, str):
            self._failure = PlanError(
                f"The shared pool {self._ray_options.shared_pool!r} serves another pipeline: "
                f"{difference(answer, self._description)}. Choose another name for `shared_pool`."
            )
            return
        self._restarts.record_start()
        attachment: Attachment = pickle.loads(answer)
        adopt_keys(attachment.class_names)
        self._attachment = attachment
        self._heart.listen(self._broker, attachment.num_workers)
        self._num_workers = 0
        self._add_workers()

    def _add_workers(self) -> None:
        """Have as many calls open as the pool had workers at its largest size so far."""
        if self._attachment is None:
            return
        for number in range(self._num_workers, self._heart.status.num_workers):
            self.scheduler.add_worker(number, lambda _: 0)
            self.scheduler.mark_ready(number)
            self._num_workers = number + 1

    @property
    def is_ready(self) -> bool:
        return self._attachment is not None or self._failure is not None

    def describe_workers(self) -> tuple[WorkerStats, ...]:
        if self._attachment is not None and not self._is_closed:
            self._heart.beat()
        return self._heart.status.workers

    @property
    def shared_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self._is_closed = True
        self.wake()
        self._monitor.stop()
        is_reader = self._attachment is not None and os.getpid() == self._owner
        if is_reader and self._monitor.is_connected:
            with contextlib.suppress(Exception):  # it is gone
                self._broker.detach.remote(self._heart.reader)

    def dispose(self) -> None:
        self.close()
        self.scheduler.clear()
        self._arrivals.clear()

    # Messages

    def _send(self, worker: int, task: Task) -> None:
        if not self._monitor.is_connected:  # else Ray would start a cluster
            return
        positions = task.positions
        call = self._broker.read.options(concurrency_group=_READS).remote(
            self._heart.reader, task.job, positions.start, positions.stop
        )
        self._report(call, "read", worker, task)

    def _withdraw(self, worker: int, task: Task) -> None:
        """Do nothing: the broker computes the block for the others anyway."""

    def wait(self, timeout_s: float | None = None) -> bool:
        begin = time.monotonic()
        deadline = None if timeout_s is None else begin + timeout_s
        self._add_workers()
        self.scheduler.resume_timers()
        joined = self._attachment
        is_woken, has_events = False, False
        while not (is_woken or has_events or self._failure is not None):
            left_s = POLL_S if self._lost_at is None else REPLACE_POLL_S
            if deadline is not None:
                left_s = min(left_s, deadline - time.monotonic())
            queue = self._events
            events, is_woken = queue.take(left_s)
            has_events = bool(events)
            for event in events:
                if self._events is queue:  # else it is of a broker that is gone
                    self._handle(event)
            self._check_cluster()
            if self._attachment is not joined:
                break  # the tasks are to be assigned again
            if deadline is not None and time.monotonic() >= deadline:
                break
        self.scheduler.pause_timers()
        self._heart.waited_s += time.monotonic() - begin
        return is_woken

    def wake(self) -> None:
        self._events.wake()

    def wait_until_woken(self, timeout_s: float) -> None:
        self._events.wait_until_woken(timeout_s)

    def _report(self, call: Any, kind: Any, worker: int, task: Task, part: int = 0) -> None:
        events = self._events

        def report(future: Any) -> None:
            events.put(_Event(kind, worker, task, part, future, time.perf_counter()))

        call.future().add_done_callback(report)

    def _handle(self, event: _Event) -> None:
        error, task = event.future.exception(), event.task
        if error is not None and event.kind == "read":
            self._lose_broker(cause_of_death(error), was_ready=True)
        elif error is not None:
            positions = task.positions  # a part was lost
            self._broker.forget.remote(task.job, positions.start, positions.stop)
            if self._arrivals.pop(task.number, None) is not None:
                self.scheduler.lose_reply(event.worker, task.number)
        elif event.kind == "read":
            self._begin_arrival(event)
        else:
            arrival = self._arrivals.get(task.number)
            if arrival is not None:
                header = arrival.parts[event.part]
                assert isinstance(header, ActorReply)
                header.set_buffers(event.future.result())
                self._finish_arrival(event.worker, task)

    def _begin_arrival(self, event: _Event) -> None:
        parts = event.future.result()
        arrival = self._arrivals[event.task.number] = _Arrival(parts)
        for number, part in enumerate(parts):
            if isinstance(part, bytes):
                arrival.parts[number] = load_error(part)
                continue
            assert isinstance(part, SharedPart)
            header: BlockHeader = pickle.loads(part.header)
            # The clock of the actor is unknown: its work is recorded as if it ended just before.
            times = header.times.shifted(event.arrived_at - header.times.ended_at)
            header = replace(header, times=times)
            recompute = partial(computed_here, self._jobs[event.task.job], part.positions)
            arrival.parts[number] = ActorReply(
                header, None if header.num_bytes else (), recompute=recompute
            )
            if header.num_bytes:
                self._report(part.data[0], "data", event.worker, event.task, number)
        self._finish_arrival(event.worker, event.task)

    def _finish_arrival(self, worker: int, task: Task) -> None:
        arrival = self._arrivals[task.number]
        if arrival.is_complete:
            del self._arrivals[task.number]
            self.scheduler.complete(worker, task.number, arrival)

    # Cluster

    def _lose_broker(self, reason: str, *, was_ready: bool) -> None:
        """Take the tasks back: the broker is gone, and all calls with it."""
        self._events = EventQueue()
        self._arrivals.clear()
        for number in range(self._num_workers):
            self._drop_worker(number, "the end of the shared pool", is_lost=True)
        self._num_workers, self._attachment = 0, None
        self._counters.restarts += 1
        reason = f"the shared pool ended: {reason}"
        self._failure = self._restarts.record_death(was_ready=was_ready, reason=reason)
        # Not before the head answers: if it is gone, too, starting a broker takes a minute.
        self._lost_at = time.monotonic()
        self._monitor.ask()

    def _check_cluster(self) -> None:
        """Note if the cluster is gone, or join again: what ended was only the broker."""
        if self._failure is not None or self._is_idle:
            return
        error = self._monitor.lost_error()
        if error is not None:
            self._failure = error
        elif self._lost_at is not None and self._monitor.answered_at > self._lost_at:
            self._lost_at = None
            self._attach()
