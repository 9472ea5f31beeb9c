"""Pool of Ray actors: starts them, exchanges messages with them, and replaces dead ones.

Ray's own restarts and retries are turned off, because they stall the stream for 15 seconds or more.
The tasks of a dead actor go to the others at once.
"""

import logging
import pickle
import time
import weakref
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.executors.pools.base import WorkerPool
from gristmill._engine.executors.pools.job import Job
from gristmill._engine.executors.pools.open_job import Probe, probes_of
from gristmill._engine.executors.pools.task import Task
from gristmill._engine.executors.ray import idle_pools
from gristmill._engine.executors.ray.actor_starter import ActorStarter, versions
from gristmill._engine.executors.ray.cluster.deaths import cause_of_death, is_death, is_loss
from gristmill._engine.executors.ray.cluster.elastic import ElasticSize
from gristmill._engine.executors.ray.cluster.monitor import ClusterMonitor
from gristmill._engine.executors.ray.cluster.nodes import ClusterNodes, ClusterView
from gristmill._engine.executors.ray.cluster.room import ClusterRoom
from gristmill._engine.executors.ray.events import POLL_S, REPLACE_POLL_S, EventQueue
from gristmill._engine.executors.ray.messages import BlockHeader, Started
from gristmill._engine.executors.ray.missing import Arrival, LackingNodes, computed_here
from gristmill._engine.executors.ray.reply import ActorReply, RemoteReply
from gristmill._engine.executors.ray.stored_plan import StoredPlan, is_stored
from gristmill._engine.executors.ray.worker import Event, PoolCounts, RayWorker
from gristmill._engine.executors.serialization.log_relay import deliver
from gristmill._engine.executors.serialization.packed_sources import PackedSource
from gristmill._engine.executors.serialization.plan_payload import PickledPlan
from gristmill._engine.executors.serialization.remote_error import load_error
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy
from gristmill._metrics.counters import Counters
from gristmill._metrics.stats import WorkerStats
from gristmill.options import RayOptions

_logger = logging.getLogger("gristmill")


@final
class RayPool(WorkerPool):
    """Actors that have loaded the same plans.

    Args:
        ray: The module, connected to the cluster.
        plan: The plans.
        key: What the keeper finds the pool by.
        options: How actors are started, monitored and replaced.
        name: What the names of the actors begin with.
        policy: The tuning policy.
        keeps_remote: Whether blocks stay where they were computed, and replies refer to them.
    """

    def __init__(
        self,
        ray: Any,
        plan: StoredPlan,
        key: Hashable,
        options: RayOptions,
        *,
        name: str,
        policy: TuningPolicy = DEFAULT_POLICY,
        keeps_remote: bool = False,
    ) -> None:
        super().__init__(key, options)
        self._ray = ray
        self._keeps_remote = keeps_remote
        self._plan = plan
        self._starter = ActorStarter(ray, plan, options, name)
        self._workers: dict[int, RayWorker] = {}
        self._counts = PoolCounts()
        self._lacking = LackingNodes()
        self._events: EventQueue[Event] = EventQueue()
        self._replies: weakref.WeakValueDictionary[int, ActorReply] = weakref.WeakValueDictionary()
        self._nodes = ClusterNodes(options)
        is_elastic = options.num_workers is None
        self._elastic = ElasticSize.within(options, policy) if is_elastic else None
        self._size = options.num_workers or options.min_workers
        self._start_timeout_s = options.start_timeout_s
        self._died_at: float | None = None
        """When an actor died that has not been replaced yet."""
        self._view: ClusterView | None = None
        """The cluster after the last death."""
        self._monitor = ClusterMonitor(ray, self._nodes.request, wants_room=is_elastic)
        self._room = ClusterRoom(self._monitor, self._nodes)

    @property
    def is_usable(self) -> bool:
        return super().is_usable and self._monitor.is_connected

    @property
    def has_lost_workers(self) -> bool:
        return False  # it is noticed with the next task, and costs little

    def holds(self, plan: PickledPlan) -> bool:
        return is_stored(self._ray, self._plan, plan)

    @property
    def packed_sources(self) -> Sequence[PackedSource]:
        return self._plan.sources

    def begin_session(self, jobs: Sequence[Job], counters: Counters) -> None:
        super().begin_session(jobs, counters)
        self._forget_released()

    def resume_session(self) -> None:
        super().resume_session()
        self._forget_released()

    def _forget_released(self) -> None:
        """Replace the actors that were ended or have died since the last session."""
        self._nodes.restart_timer()
        for worker in list(self._workers.values()):
            if worker.is_released:
                self._discard(worker, "others needed the room")

    def release(self) -> None:
        """End the actors while no session uses them. Any thread may call this."""
        for worker in list(self._workers.values()):
            worker.is_released = True
            self._monitor.kill(worker.handle)

    # Workers

    @property
    def num_workers(self) -> int:
        return self._num_ready or self._size

    @property
    def _num_ready(self) -> int:
        return sum(map(self.scheduler.has_worker, self._workers))

    def start(self) -> None:
        if not self._monitor.is_started:
            self._monitor.start()
            weakref.finalize(self, self._monitor.stop)
            idle_pools.register(self)
        for number in range(self._size):
            if number not in self._workers:
                self._start_worker(number)

    def _start_worker(self, number: int) -> None:
        avoided = self._nodes.avoided(self._view)
        name, handle = self._starter.create(number, avoided=avoided)
        worker = RayWorker(number, name, handle, self._events)
        worker.avoids_until = self._nodes.next_try_at if avoided else None
        self._workers[number] = worker
        worker.load(self._starter.load(handle, number, num_workers=self._size))

    @property
    def is_ready(self) -> bool:
        self.wait(0.0)
        return self._failure is not None or all(map(self.scheduler.has_worker, self._workers))

    @property
    def shared_bytes(self) -> int:
        replies = [ref() for ref in self._replies.valuerefs()]
        return sum([reply.num_bytes for reply in replies if reply is not None])

    def describe_workers(self) -> tuple[WorkerStats, ...]:
        return self._counts.as_stats()

    def close(self) -> None:
        self._is_closed = True
        self.wake()
        for worker in list(self._workers.values()):
            self._monitor.kill(worker.handle)
        self._monitor.stop()

    def dispose(self) -> None:
        self.close()
        self._workers.clear()
        self.scheduler.clear()

    # Messages

    def _send(self, worker: int, task: Task) -> None:
        actor = self._workers[worker]
        actor.unsent.append(task)
        self._send_tasks(actor)

    def _send_tasks(self, worker: RayWorker) -> None:
        if not self._monitor.is_connected:  # else Ray would start a cluster
            return
        probe = worker.send_next(self._probes_of)
        if probe is not None:
            self.scheduler.report_progress(worker.number, probe.position, probe.record)

    def _probes_of(self, task: Task) -> Iterator[Probe]:
        return probes_of(self._jobs[task.job].cut, task.positions)

    def _withdraw(self, worker: int, task: Task) -> None:
        """Do nothing: a task that is taken back was never sent."""

    def wait(self, timeout_s: float | None = None) -> bool:
        begin = time.monotonic()
        deadline = None if timeout_s is None else begin + timeout_s
        self.scheduler.resume_timers()
        is_woken, has_events = False, False
        while not (is_woken or has_events or self._failure is not None):
            limits: list[float | None] = [POLL_S if self._died_at is None else REPLACE_POLL_S]
            limits.append(self.scheduler.seconds_to_timeout)
            limits.append(None if deadline is None else deadline - time.monotonic())
            events, is_woken = self._events.take(min(one for one in limits if one is not None))
            has_events = bool(events)
            for event in events:
                self._handle(event)
            for arrival in self._lacking.take_parked():
                if self._workers.get(arrival.worker.number) is arrival.worker:
                    self._accept(arrival)
            self._check_cluster()
            if deadline is not None and time.monotonic() >= deadline:
                break
            if self.scheduler.seconds_to_timeout == 0.0:
                break
        self.scheduler.pause_timers()
        for number in self.scheduler.overdue_workers():
            self._replace(self._workers[number], "exceeding `block_timeout_s`")
        if not self._keeps_remote:
            self.add_wait(time.monotonic() - begin)
        if self._elastic is not None:
            self._resize(self._elastic)
        return is_woken

    def add_wait(self, seconds: float) -> None:
        """Add time for which the consumer waited, if the number of actors follows that."""
        if self._elastic is not None:
            self._elastic.add_wait(seconds)

    def wake(self) -> None:
        self._events.wake()

    def wait_until_woken(self, timeout_s: float) -> None:
        self._events.wait_until_woken(timeout_s)

    def _handle(self, event: Event) -> None:
        worker = event.worker
        if self._workers.get(worker.number) is not worker:
            return  # of an actor that was replaced
        error = event.future.exception()
        if event.kind == "started":
            self._handle_start(worker, event.future, error)
        elif event.kind == "probe" and not is_death(self._ray, error):
            worker.is_probing = False
            self._send_tasks(worker)
        elif error is not None and event.kind == "data":
            worker.end_fetch(event.task, event.arrived_at)  # the object was lost
            worker.finish(event.task)
            self.scheduler.lose_reply(worker.number, event.task)
            self._send_tasks(worker)
        elif error is not None:
            self._replace(worker, cause_of_death(error), is_lost=is_loss(self._ray, error))
        elif event.kind == "header":
            self._handle_header(event)
        else:
            header = worker.end_fetch(event.task, event.arrived_at)
            self._complete(worker, event.task, header, event.future.result())

    def _handle_header(self, event: Event) -> None:
        worker, number, encoded = event.worker, event.task, event.future.result()
        header = worker.receive(number, pickle.loads(encoded), event.arrived_at)
        for log in header.logs:
            deliver(log, worker.number)
        self._accept(Arrival(worker, number, encoded, header))

    def _accept(self, arrival: Arrival) -> None:
        """Use a block that was computed, unless another node or a later actor has to try it."""
        worker, number, encoded, header = arrival
        if header.missing and self._try_elsewhere(arrival):
            return
        if self._keeps_remote:
            reply = RemoteReply(encoded, header, worker.data_of(number))
            self._finish(worker, number, reply)
        elif header.num_bytes:
            worker.fetch(number, header)
        else:
            self._complete(worker, number, header, ())

    def _complete(self, worker: RayWorker, number: int, header: BlockHeader, buffers: Any) -> None:
        task = worker.task_of(number)

        def recompute(result: BlockResult) -> BlockResult:
            return computed_here(self._jobs[task.job], task.positions, result)

        reply = ActorReply(header, buffers, recompute=recompute)
        self._replies[id(reply)] = reply
        self._finish(worker, number, reply)

    def _finish(self, worker: RayWorker, number: int, reply: ActorReply | RemoteReply) -> None:
        worker.finish(number)
        self._lacking.forget(number)
        self.scheduler.complete(worker.number, number, reply)
        self._send_tasks(worker)

    def _try_elsewhere(self, arrival: Arrival) -> bool:
        """Let a node compute a block that has not tried it, or wait for the actor of one.

        Returns:
            Whether there may be one. Else the block counts as it is.
        """
        worker, number, _, _ = arrival
        if worker.task_of(number).is_cancelled:
            return False
        ready = [one for one in self._workers.values() if self.scheduler.has_worker(one.number)]
        other = self._lacking.find_other(arrival, ready)
        if other is None:
            began_after = time.monotonic() - self._start_timeout_s
            is_growing = self._died_at is not None or any(
                one.created_at > began_after for one in self._workers.values() if one not in ready
            )
            if is_growing:
                self._lacking.parked.append(arrival)
            return is_growing
        worker.finish(number)
        for order in self.scheduler.move(worker.number, number, to=other.number):
            self._send(order.worker, order.task)
        self._send_tasks(worker)
        return True

    def _handle_start(self, worker: RayWorker, future: Any, error: BaseException | None) -> None:
        if error is not None:
            is_lost = is_loss(self._ray, error)
            self._replace(worker, cause_of_death(error), is_lost=is_lost)
            return
        answer: bytes | dict[str, str] = future.result()
        if isinstance(answer, dict):
            self._refuse(worker, answer)
            return
        started: Started = pickle.loads(answer)
        for log in started.logs:
            deliver(log, worker.number)
        worker.node_id, worker.node = started.node_id, started.node
        worker.counts = self._counts.of(worker)
        if started.error is not None:
            self._failure = load_error(started.error)
            self._discard(worker, "it could not start")
            return
        self.scheduler.add_worker(worker.number, worker.take_back)
        self.scheduler.mark_ready(worker.number)
        self._restarts.record_start()

    # Cluster

    def _check_cluster(self) -> None:
        """Note if the cluster is gone, or has no room for any actor."""
        if self._failure is not None or self._is_idle or not self._monitor.is_started:
            return
        error = self._monitor.lost_error()
        if error is not None:
            self._failure = error
        elif self._died_at is not None and (view := self._monitor.view_since(self._died_at)):
            self._died_at, self._view = None, view
            self._failure = self._nodes.refusal_error(view)
            if self._failure is None:
                self.start()
        elif self._num_ready:
            self._nodes.restart_timer()
            self._try_all_nodes()
            self._counters.missing_workers = self._room.explain(
                num_ready=self._num_ready, num_wanted=self._size
            )
        elif self._nodes.is_overdue and (view := self._room.view):
            if self._nodes.is_full(view):
                idle_pools.release_idle()
            self._failure = self._nodes.room_error(view)

    @property
    def is_holding_room(self) -> bool:
        """Whether there are actors that no session uses."""
        workers = list(self._workers.values())
        return self._is_idle and not all(worker.is_released for worker in workers)

    def _try_all_nodes(self) -> None:
        """Create actors again that wait for room on other nodes than one that was lost long ago."""
        now = time.monotonic()
        for worker in list(self._workers.values()):
            until = worker.avoids_until
            if until is not None and until < now and not self.scheduler.has_worker(worker.number):
                self._discard(worker, "its node was lost")
                self._start_worker(worker.number)

    def _resize(self, elastic: ElasticSize) -> None:
        """Start or release actors."""
        num_free = self._monitor.num_free
        self._size = elastic.adapt(time.monotonic(), num_ready=self._num_ready, num_free=num_free)
        if self._is_idle or self._failure is not None or self._is_closed:
            return
        if len(self._workers) < self._size and self._monitor.is_responsive:
            self.start()
        for number in sorted(self._workers, reverse=True)[: len(self._workers) - self._size]:
            if not self.scheduler.has_worker(number) or self.scheduler.is_idle(number):
                self._discard(self._workers[number], "it was not needed")

    # Deaths

    def _refuse(self, worker: RayWorker, found: dict[str, str]) -> None:
        """Start an actor elsewhere, in place of one on a node that has other versions."""
        self._nodes.refuse(found, versions())
        self._discard(worker, "other versions")
        self._died_at = time.monotonic()

    def _replace(self, dead: RayWorker, reason: str, *, is_lost: bool = False) -> None:
        """Start another actor in place of a dead one, unless too many have died.

        Args:
            dead: The actor.
            reason: What it died of.
            is_lost: Whether its node is gone.
        """
        was_ready = self.scheduler.has_worker(dead.number)
        self._discard(dead, reason, is_lost=is_lost)
        if is_lost and dead.node_id:
            self._nodes.lose(dead.node_id)
        if self._is_idle or self._failure is not None:
            return
        self._counts.add_restart(dead, was_ready=was_ready)
        self._counters.restarts += 1
        _logger.debug("Ray actor %d is replaced: %s", dead.number, reason)
        if not is_lost:
            self._failure = self._restarts.record_death(was_ready=was_ready, reason=reason)
        # Not before the head answers: if it is gone, too, creating an actor takes a minute.
        self._died_at = time.monotonic()

    def _discard(self, worker: RayWorker, reason: str, *, is_lost: bool = True) -> None:
        """End an actor, and let others compute its tasks."""
        self._monitor.kill(worker.handle)
        del self._workers[worker.number]
        if self.scheduler.has_worker(worker.number):
            self._drop_worker(worker.number, reason, is_lost=is_lost)
