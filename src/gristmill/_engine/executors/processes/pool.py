"""Pool of worker processes: starts them, exchanges messages with them, and replaces dead ones."""

import logging
import math
import select
import time
from collections.abc import Hashable, Sequence
from typing import final

from gristmill._engine.executors.pools.base import WorkerPool
from gristmill._engine.executors.pools.failures import records_name
from gristmill._engine.executors.pools.task import Task
from gristmill._engine.executors.processes.arena import MappedMemory
from gristmill._engine.executors.processes.channel import InvalidMessageError, Waker
from gristmill._engine.executors.processes.fork_server import left_out, why_not_forked
from gristmill._engine.executors.processes.inherited_state import InheritedState
from gristmill._engine.executors.processes.messages import (
    InitFailed,
    LogRelay,
    Progress,
    Ready,
    SlotsClosed,
    SlowTask,
    TaskDone,
)
from gristmill._engine.executors.processes.worker_process import WorkerProcess
from gristmill._engine.executors.serialization.log_relay import deliver
from gristmill._engine.executors.serialization.packed_sources import PackedSource
from gristmill._engine.executors.serialization.plan_payload import PickledPlan, PlanPayload
from gristmill._engine.executors.serialization.remote_error import load_error
from gristmill._metrics.memory import WORKERS
from gristmill._metrics.timeline import Track, Work, unfinished
from gristmill.errors import ClosedError, WorkerError
from gristmill.options import WorkerOptions

logger = logging.getLogger("gristmill")

MAX_POLL_SECONDS = 3600.0
"""The system call accepts no much longer timeout; after it the pool polls again."""


@final
class ProcessPool(WorkerPool):
    """Worker processes that have loaded the same plans."""

    def __init__(
        self, payload: PlanPayload, key: Hashable, *, num_workers: int, options: WorkerOptions
    ) -> None:
        """Take over the plans in shared memory. No process is started before `start`.

        Args:
            payload: The plans. The pool closes them.
            key: What the keeper finds the pool by.
            num_workers: The number of workers.
            options: How they are started, monitored and replaced.
        """
        super().__init__(key, options)
        self._num_workers = num_workers
        self._payload = payload
        self._inherited = InheritedState()
        self._memory = MappedMemory()
        self._workers: dict[int, WorkerProcess] = {}
        self._waker = Waker()
        try:
            self._waker.open()
        except OSError:
            payload.close()
            raise
        self._lacks_resources = False
        self._is_disposed = False

    @property
    def num_workers(self) -> int:
        return self._num_workers

    @property
    def is_usable(self) -> bool:
        return super().is_usable and not self._lacks_resources

    def holds(self, plan: PickledPlan) -> bool:
        return self._inherited.is_current and plan.is_in(self._payload)

    @property
    def packed_sources(self) -> Sequence[PackedSource]:
        return self._payload.sources

    @property
    def has_lost_workers(self) -> bool:
        return any(
            worker.channel.is_closed_by_peer or worker.has_ended
            for worker in self._workers.values()
        )

    # Workers

    def start(self) -> None:
        for number in range(self.num_workers):
            if number not in self._workers:
                worker = self._start_worker(number)
                self.scheduler.add_worker(number, worker.permits.take_back)
                worker.send_init(self._payload, num_workers=self.num_workers)
        self._counters.worker_start = self._how_started()

    def _how_started(self) -> str:
        modules = self._payload.pickles.modules
        if not all(worker.is_forked for worker in self._workers.values()):
            return f"spawned: {why_not_forked(modules)}"
        left = left_out()
        reasons = dict.fromkeys(left[module] for module in left if module in modules)
        return f"forked, with imports in each worker: {'; '.join(reasons)}" if reasons else "forked"

    def _start_worker(self, number: int) -> WorkerProcess:
        try:
            worker = WorkerProcess(
                number, memory=self._memory, modules=self._payload.pickles.modules
            )
        except OSError as error:  # no descriptors left for its channels
            raise WorkerError(f"A worker process could not be started: {error}.") from error
        self._workers[number] = worker  # first: either `close` finds it, or this finds it closed
        if self._is_closed:  # by another thread, while this one started the process
            self._workers.pop(number).reap()
            raise ClosedError("The worker processes were stopped.")
        return worker

    @property
    def is_ready(self) -> bool:
        self.wait(0.0)
        return self._failure is not None or all(map(self.scheduler.is_ready, self._workers))

    @property
    def shared_bytes(self) -> int:
        return self._memory.shared_bytes

    @property
    def memory(self) -> MappedMemory:
        return self._memory

    def running_work(self, tasks: Sequence[Task]) -> Sequence[Work]:
        numbers = {id(part) for task in tasks for part in (task, *task.subtasks)}
        return [
            unfinished(Track(f"worker {number}", "", worker.pid), elapsed_s)
            for number, task, elapsed_s in self.scheduler.running()
            if id(task) in numbers and (worker := self._workers.get(number)) is not None
        ]

    def close(self) -> None:
        self._is_closed = True
        self.wake()
        workers = list(self._workers.values())
        for worker in workers:  # all first, so that they end at the same time
            worker.kill()
        for worker in workers:
            worker.wait()

    def dispose(self) -> None:
        if not self._is_disposed:
            self._is_disposed = True
            while self._workers:
                self._workers.popitem()[1].reap()
            self.scheduler.clear()
            self._payload.close()
            self._waker.close()

    def wait_until_woken(self, timeout_s: float) -> None:
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        if poll.poll(math.ceil(1000 * min(timeout_s, MAX_POLL_SECONDS))):
            self._waker.clear()

    def trim_memory(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for _ in range(2):  # again for the memory of replies that only arrive now
            if self._memory.shared_bytes:
                for worker in self._workers.values():
                    worker.trim_memory()
            while any(worker.is_trimming for worker in self._workers.values()):
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0 or self.wait(remaining_s):
                    return

    # Messages

    def _send(self, worker: int, task: Task) -> None:
        self._workers[worker].send_task(task)

    def _withdraw(self, worker: int, task: Task) -> None:
        self._workers[worker].withdraw_task(task)

    def release_slots(self, min_bytes: int) -> None:
        for worker in self._workers.values():
            worker.release_slots(min_bytes)

    def wait(self, timeout_s: float | None = None) -> bool:
        is_woken = False
        self.scheduler.resume_timers()
        limit_s = self.scheduler.seconds_to_timeout
        if limit_s is not None:
            timeout_s = limit_s if timeout_s is None else min(timeout_s, limit_s)
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        by_descriptor = {worker.channel.fileno(): worker for worker in self._workers.values()}
        by_end = {
            descriptor: worker
            for worker in self._workers.values()
            if (descriptor := worker.end_descriptor) is not None
        }
        for descriptor in (*by_descriptor, *by_end):
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(
            None if timeout_s is None else math.ceil(1000 * min(timeout_s, MAX_POLL_SECONDS))
        ):
            if descriptor in by_descriptor:
                self._receive(by_descriptor[descriptor])
            elif descriptor in by_end:
                self._check_end(by_end[descriptor])
            else:
                self._waker.clear()
                is_woken = True
        self.scheduler.pause_timers()
        for number in self.scheduler.overdue_workers():
            self._workers[number].kill("exceeding `block_timeout_s`")
        for number, task, elapsed_s in self.scheduler.silent_workers():
            self._log_slow(number, task, elapsed_s, "")
        return is_woken

    def wake(self) -> None:
        self._waker.wake()

    def _receive(self, worker: WorkerProcess) -> None:
        try:
            for message in worker.channel.receive_ready():
                self._handle(worker, message)
        except (OSError, MemoryError):
            worker.kill()  # further messages could not be decoded; its tasks are computed again
            # No memory to map, or no descriptor. The pool cannot be kept, because a thread watches
            # an idle one, and `Thread.start` never returns if the thread lacks memory to begin.
            self._lacks_resources = True
            raise
        except InvalidMessageError:
            worker.kill("data in the worker's socket that is not a message")
            self._replace(worker)
            return
        if worker.channel.has_ended and self._is_current(worker):
            self._replace(worker)

    def _is_current(self, worker: WorkerProcess) -> bool:
        """Return whether a worker has not been replaced."""
        return self._workers.get(worker.number) is worker

    def _handle(self, worker: WorkerProcess, message: object) -> None:
        number = worker.number
        match message:
            case TaskDone():
                self.scheduler.complete(number, message.task, worker.open_reply(message))
            case LogRelay():
                deliver(message.log, number)
            case Progress():
                self.scheduler.report_progress(number, message.position, message.record)
            case SlowTask():
                task = self.scheduler.report_slow(number, message.task, message.elapsed_s)
                if task is not None:
                    self._log_slow(number, task, message.elapsed_s, message.step)
            case Ready():
                self.scheduler.mark_ready(number)
                WORKERS[worker.pid] = None
                self._restarts.record_start()
            case SlotsClosed():
                worker.close_slots(message)
            case InitFailed():
                self._failure = load_error(message.error)
            case _:
                raise InvalidMessageError(f"Worker {number} sent {message!r:.100}.")

    def _log_slow(self, number: int, task: Task, elapsed_s: float, step: str) -> None:
        if task.is_cancelled:  # of an earlier session; nothing waits for it
            return
        where = step or f"computing {records_name(self._jobs[task.job].cut, task.positions)}"
        logger.warning(
            "Worker %d has been in one block for %.0f s: %s. If it hangs, set `block_timeout_s` in "
            "`WorkerOptions`: the block is then computed again by another worker.",
            number,
            elapsed_s,
            where,
        )

    # Deaths

    def _check_end(self, worker: WorkerProcess) -> None:
        """Replace a worker whose process is dead, after its last messages."""
        if not self._is_current(worker) or not worker.has_ended:
            return
        while self._is_current(worker) and worker.channel.has_data:
            self._receive(worker)
        if self._is_current(worker):
            self._replace(worker)

    def _replace(self, dead: WorkerProcess) -> None:
        """Start another worker in place of a dead one, unless too many have died."""
        reason = dead.reap()
        was_ready = self.scheduler.is_ready(dead.number)
        self._drop_worker(dead.number, reason)
        del self._workers[dead.number]
        if self._is_idle:  # the next session starts another one
            return
        if self._failure is not None:  # the worker reported why it ended
            return
        if dead.was_refused:  # the fork server forks no more; the next process starts elsewhere
            self.start()
            return
        self._counters.restarts += 1
        logger.debug("Worker %d is replaced: %s", dead.number, reason)
        self._failure = self._restarts.record_death(was_ready=was_ready, reason=reason)
        if self._failure is None:
            self.start()
