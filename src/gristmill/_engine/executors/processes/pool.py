"""Worker pool: starts worker processes, exchanges messages with them, and replaces dead ones.

All methods run in the thread that pulls the stream, which Ctrl-C never interrupts. Only `wake`,
`close_stream` and `close` may be called from other threads. They take no lock: they set a flag, and
kill processes.
"""

import math
import os
import select
from typing import final

from gristmill._engine.executors.ipc.channel import InvalidMessageError, Waker
from gristmill._engine.executors.ipc.log_relay import deliver
from gristmill._engine.executors.ipc.plan_payload import PlanPayload
from gristmill._engine.executors.ipc.remote_error import load_error
from gristmill._engine.executors.processes.failures import RestartLimit, deadly_records_error
from gristmill._engine.executors.processes.job import Job, pack_jobs
from gristmill._engine.executors.processes.messages import (
    InitFailed,
    LogRelay,
    Progress,
    Ready,
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
    """Worker processes that one stream uses, or several streams that run side by side.

    It opens no descriptor before the first stream is added, and closes with the last one.
    """

    def __init__(self, *, num_workers: int, options: WorkerOptions, counters: Counters) -> None:
        self.num_workers = num_workers
        self.options = options
        self.counters = counters
        self.scheduler = Scheduler(block_timeout_s=options.block_timeout_s)
        self._num_streams = 0
        self._num_closed_streams = 0
        self._num_disposed_streams = 0
        self._jobs: list[Job] = []
        self._payload: PlanPayload | None = None
        self._workers: dict[int, WorkerProcess] = {}
        self._waker = Waker()
        self._restarts = RestartLimit(options.max_restarts)
        self._failure: BaseException | None = None
        self._is_closed = False

    # Streams

    @property
    def accepts_streams(self) -> bool:
        """Whether another stream can be added: not after the plans were sent to the workers."""
        return self._payload is None and not self._num_closed_streams

    def add_stream(self, job: Job) -> int:
        """Compute the ranges of another stream too; return the number of its job."""
        assert self.accepts_streams
        self._waker.open()
        self._num_streams += 1
        self._jobs.append(job)
        return len(self._jobs) - 1

    def num_workers_per_stream(self) -> int:
        """Return how many workers each stream should keep busy."""
        return -(-self.num_workers // self._num_streams)

    def close_stream(self) -> None:
        """Close the pool if this was the last open stream. Any thread may call this."""
        self._num_closed_streams += 1
        if self._num_closed_streams >= self._num_streams:
            self.close()

    def dispose_stream(self) -> None:
        """Dispose of the pool if this was the last stream."""
        self._num_disposed_streams += 1
        if self._num_disposed_streams == self._num_streams:
            self.dispose()

    # Workers

    def start(self) -> None:
        """Start the workers that are missing, without waiting for them."""
        if len(self._workers) < self.num_workers:
            for number in range(self.num_workers):
                if number not in self._workers:
                    self._workers[number] = self._start_worker(number)
                    self.scheduler.add_worker(number)
        for worker in self._workers.values():
            if not worker.is_initialized:
                self._payload = self._payload or pack_jobs(self.options.worker_init_fn, self._jobs)
                worker.send_init(self._payload, num_workers=self.num_workers)

    def _start_worker(self, number: int) -> WorkerProcess:
        worker = WorkerProcess(number)
        if self._is_closed:  # by another thread, while this one started the process
            worker.reap()
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
        while self._workers:
            self._workers.popitem()[1].reap()
        self.scheduler.clear()
        payload, self._payload = self._payload, None
        if payload is not None:
            os.close(payload.descriptor)
        self._waker.close()

    # Messages

    def assign(self, *, max_per_worker: int) -> None:
        """Assign waiting tasks to the workers, up to `max_per_worker` to each."""
        for order in self.scheduler.assign(max_per_worker=max_per_worker):
            worker = self._workers[order.worker]
            if isinstance(order, Assignment):
                worker.send_task(order.task)
            else:
                worker.withdraw_task(order.task)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for messages until a worker exceeds its time limit, `wake`, or `timeout_s`."""
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
        self.scheduler.pause_timers()
        for number in self.scheduler.overdue_workers():
            self._workers[number].kill("exceeding `block_timeout_s`")

    def wake(self) -> None:
        """Make `wait` in another thread return. Any thread may call this."""
        self._waker.wake()

    def _receive(self, worker: WorkerProcess) -> None:
        try:
            for message in worker.channel.receive_ready():
                self._handle(worker, message)
        except OSError:
            worker.kill()  # further messages could not be decoded; its tasks are computed again
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
        if self._failure is not None:  # the worker reported why it ended
            return
        self.counters.restarts += 1
        self._failure = self._restarts.record_death(was_ready=was_ready, reason=reason)
        if self._failure is None:
            self.start()


def pool_for_stream(
    shared: WorkerPool | None, *, num_workers: int, options: WorkerOptions, counters: Counters
) -> WorkerPool:
    """Return the pool that a new stream should use: the shared one, or a new one.

    Args:
        shared: A pool that other streams use, too. It may have started, and then accepts no more.
        num_workers: Size of a new pool.
        options: Options of a new pool.
        counters: Counters of a new pool.
    """
    if shared is not None and shared.accepts_streams:
        return shared
    return WorkerPool(num_workers=num_workers, options=options, counters=counters)
