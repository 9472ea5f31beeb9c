"""Worker pool: starts worker processes, exchanges messages with them, and replaces dead ones.

All methods run in the thread that pulls the stream, which Ctrl-C never interrupts. Only `wake`,
`close_stream` and `close` may be called from other threads. They take no lock: they set a flag, and
kill processes.
"""

import math
import os
import select
import time
from collections.abc import Hashable, Sequence
from typing import final

from gristmill._engine.executors.ipc.channel import InvalidMessageError, Waker
from gristmill._engine.executors.ipc.log_relay import deliver
from gristmill._engine.executors.ipc.plan_payload import PlanPayload
from gristmill._engine.executors.ipc.remote_error import load_error
from gristmill._engine.executors.processes.failures import RestartLimit, deadly_records_error
from gristmill._engine.executors.processes.fork_server import why_not_forked
from gristmill._engine.executors.processes.job import Job
from gristmill._engine.executors.processes.messages import (
    InitFailed,
    LogRelay,
    Progress,
    Ready,
    SlotsClosed,
    TaskDone,
    TaskWithdrawn,
)
from gristmill._engine.executors.processes.worker_process import WorkerProcess
from gristmill._engine.executors.scheduling.scheduler import Assignment, Scheduler
from gristmill._engine.executors.scheduling.task import Task
from gristmill._metrics.counters import Counters
from gristmill.errors import ClosedError
from gristmill.options import WorkerOptions

MAX_POLL_SECONDS = 3600.0
"""The system call accepts no much longer timeout; after it the pool polls again."""


@final
class WorkerPool:
    """Worker processes that have loaded the same plans.

    One session at a time uses it. Between sessions it is idle, and its workers keep the plans.
    """

    def __init__(
        self, payload: PlanPayload, key: Hashable, *, num_workers: int, options: WorkerOptions
    ) -> None:
        """Take over the plans in shared memory. No process is started before `start`.

        Args:
            payload: The plans. The pool closes the descriptor.
            key: What the keeper finds the pool by.
            num_workers: The number of workers.
            options: How they are started, monitored and replaced.
        """
        self.key = key
        self.num_workers = num_workers
        self.options = options
        self.payload = payload
        self.scheduler = Scheduler(block_timeout_s=options.block_timeout_s)
        self._owner = os.getpid()
        self._jobs: Sequence[Job] = ()
        self._counters = Counters()
        self._restarts = RestartLimit(options.max_restarts)
        self._workers: dict[int, WorkerProcess] = {}
        self._waker = Waker()
        try:
            self._waker.open()
        except OSError:
            os.close(payload.descriptor)
            raise
        self._failure: BaseException | None = None
        self._lacks_resources = False
        self._is_idle = False
        self.is_ending = False
        """Whether the session is about to return it to the keeper."""
        self._is_closed = False
        self._is_disposed = False

    def begin_session(self, jobs: Sequence[Job], counters: Counters) -> None:
        """Compute tasks of these jobs, which are equal to those in the payload.

        Args:
            jobs: The jobs, for the errors that name their records.
            counters: Where restarts are counted.
        """
        self._is_idle = False
        self._jobs = jobs
        self._counters = counters
        self.is_ending = False
        self._restarts = RestartLimit(self.options.max_restarts)

    def pause_session(self) -> None:
        """Start no more workers, until the same session resumes."""
        self._is_idle = True

    def resume_session(self) -> None:
        """Continue the session that has paused, and count its restarts further."""
        self._is_idle = False

    def end_session(self) -> None:
        """Drop the tasks that workers have, and what refers to the session."""
        withdrawals = self.scheduler.withdraw_all()
        if self.is_usable:  # in a fork of the parent, the channels are closed
            for withdrawal in withdrawals:
                self._workers[withdrawal.worker].withdraw_task(withdrawal.task)
        self._is_idle = True
        self._jobs, self._counters = (), Counters()

    @property
    def is_usable(self) -> bool:
        """Whether a session may use it: it has not failed, and is not that of a fork's parent."""
        has_failed = self._failure is not None or self._lacks_resources
        return not self._is_closed and not has_failed and self._owner == os.getpid()

    @property
    def has_lost_workers(self) -> bool:
        """Whether workers have died while no session used them."""
        return any(worker.channel.is_closed_by_peer for worker in self._workers.values())

    # Workers

    def start(self) -> None:
        """Start the workers that are missing, without waiting for them."""
        for number in range(self.num_workers):
            if number not in self._workers:
                worker = self._start_worker(number)
                self.scheduler.add_worker(number)
                worker.send_init(self.payload, num_workers=self.num_workers)
        self._counters.worker_start = self._how_started()

    def _how_started(self) -> str:
        if all(worker.is_forked for worker in self._workers.values()):
            return "forked"
        return f"spawned: {why_not_forked()}"

    def _start_worker(self, number: int) -> WorkerProcess:
        worker = WorkerProcess(number, modules=self.payload.pickles.modules)
        self._workers[number] = worker  # first: either `close` finds it, or this finds it closed
        if self._is_closed:  # by another thread, while this one started the process
            self._workers.pop(number).reap()
            raise ClosedError("The worker processes were stopped.")
        return worker

    @property
    def is_ready(self) -> bool:
        """Whether all workers have started, or cannot start."""
        self.wait(0.0)
        return self._failure is not None or all(map(self.scheduler.is_ready, self._workers))

    def take_failure(self) -> BaseException | None:
        """Return the reason why no more replies will come, if there is one, and forget it.

        The next `start` tries again. The pool does not keep the exception, because once raised it
        keeps alive the frames that it passed through.
        """
        failure, self._failure = self._failure, None
        return failure

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that are mapped."""
        return sum(worker.mapped_slots.num_bytes for worker in self._workers.values())

    def close(self) -> None:
        """Kill the workers. Their elements stay valid as long as they are referenced."""
        self._is_closed = True
        self.wake()
        workers = list(self._workers.values())
        for worker in workers:  # all first, so that they end at the same time
            worker.kill()
        for worker in workers:
            worker.wait()

    def dispose(self) -> None:
        """Close all descriptors. No other thread may be in `wait`."""
        if not self._is_disposed:
            self._is_disposed = True
            while self._workers:
                self._workers.popitem()[1].reap()
            self.scheduler.clear()
            os.close(self.payload.descriptor)
            self._waker.close()

    def wait_until_woken(self, timeout_s: float) -> None:
        """Wait for `wake`, without handling messages, at most for `timeout_s`."""
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        if poll.poll(math.ceil(1000 * min(timeout_s, MAX_POLL_SECONDS))):
            self._waker.clear()

    def trim_memory(self, timeout_s: float) -> None:
        """Return the shared memory that is not in use to the system.

        Args:
            timeout_s: How long to wait for the workers to do so. `wake` ends the wait.
        """
        deadline = time.monotonic() + timeout_s
        for _ in range(2):  # again for the memory of replies that only arrive now
            if self.shared_bytes:
                for worker in self._workers.values():
                    worker.trim_memory()
            while any(worker.is_trimming for worker in self._workers.values()):
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0 or self.wait(remaining_s):
                    return

    # Messages

    def assign(self, *, max_per_worker: int) -> None:
        """Assign waiting tasks to the workers, up to `max_per_worker` to each."""
        for order in self.scheduler.assign(max_per_worker=max_per_worker):
            worker = self._workers[order.worker]
            if isinstance(order, Assignment):
                worker.send_task(order.task)
            else:
                worker.withdraw_task(order.task)

    def release_slots(self, min_bytes: int) -> None:
        """Let each worker reuse its slots that were freed, if they have at least `min_bytes`."""
        for worker in self._workers.values():
            worker.release_slots(min_bytes)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for messages until a worker exceeds its time limit, `wake`, or `timeout_s`.

        Returns:
            Whether it was woken.
        """
        is_woken = False
        self.scheduler.resume_timers()
        limit_s = self.scheduler.seconds_to_timeout
        if limit_s is not None:
            timeout_s = limit_s if timeout_s is None else min(timeout_s, limit_s)
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        by_descriptor = {worker.channel.fileno(): worker for worker in self._workers.values()}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(
            None if timeout_s is None else math.ceil(1000 * min(timeout_s, MAX_POLL_SECONDS))
        ):
            if descriptor in by_descriptor:
                self._receive(by_descriptor[descriptor])
            else:
                self._waker.clear()
                is_woken = True
        self.scheduler.pause_timers()
        for number in self.scheduler.overdue_workers():
            self._workers[number].kill("exceeding `block_timeout_s`")
        return is_woken

    def wake(self) -> None:
        """Make `wait` in another thread return. Any thread may call this."""
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
        if worker.channel.has_ended and self._workers.get(worker.number) is worker:
            self._replace(worker)

    def _handle(self, worker: WorkerProcess, message: object) -> None:
        number = worker.number
        match message:
            case TaskDone():
                self.scheduler.complete(number, message.task, worker.open_reply(message))
            case TaskWithdrawn():
                self.scheduler.confirm_withdrawal(number, message.task)
            case LogRelay():
                deliver(message.log, number)
            case Progress():
                self.scheduler.report_progress(number, message.position, message.record)
            case Ready():
                self.scheduler.mark_ready(number)
                self._restarts.record_start()
            case SlotsClosed():
                worker.finish_trimming(message)
            case InitFailed():
                self._failure = load_error(message.error)
            case _:
                raise InvalidMessageError(f"Worker {number} sent {message!r:.100}.")

    # Deaths

    def _replace(self, dead: WorkerProcess) -> None:
        """Start another worker in place of a dead one, unless too many have died."""
        reason = dead.reap()
        was_ready = self.scheduler.is_ready(dead.number)

        def explain(task: Task, record: int | None) -> BaseException:
            cut = self._jobs[task.job].cut
            return deadly_records_error(
                cut, task.positions, record, tries=task.tries, reason=reason
            )

        self.scheduler.remove_worker(dead.number, explain=explain)
        del self._workers[dead.number]
        if self._is_idle:  # the next session starts another one
            return
        if self._failure is not None:  # the worker reported why it ended
            return
        if dead.was_refused:  # the fork server forks no more; the next process starts elsewhere
            self.start()
            return
        self._counters.restarts += 1
        self._failure = self._restarts.record_death(was_ready=was_ready, reason=reason)
        if self._failure is None:
            self.start()
