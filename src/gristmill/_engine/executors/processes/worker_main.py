"""Main loop of a worker process: it computes the ranges that the parent sends."""

import _thread
import contextlib
import gc
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, final

from gristmill._base.memory.aligned_alloc import keep_memory_warm
from gristmill._engine.access.running import describe_running
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.executors.pools.job import Job, load_jobs
from gristmill._engine.executors.pools.open_job import OpenJob, probes_of
from gristmill._engine.executors.processes.arena import Arena
from gristmill._engine.executors.processes.channel import Channel, InvalidMessageError, take_permits
from gristmill._engine.executors.processes.messages import (
    ComputeTask,
    Init,
    InitFailed,
    LogRelay,
    Progress,
    Ready,
    ReleaseSlots,
    SlotsClosed,
    SlowTask,
    TaskDone,
    TrimMemory,
    WithdrawTask,
)
from gristmill._engine.executors.serialization.block_codec import BlockEncoder, BlockTimes, Message
from gristmill._engine.executors.serialization.log_relay import (
    RelayedLog,
    install_relay,
)
from gristmill._engine.executors.serialization.plan_payload import PlanPayload
from gristmill._engine.executors.serialization.remote_error import dump_error
from gristmill.errors import WorkerError

_POLLS_PER_LIMIT = 4
"""How often the thread wakes within the limit, which is how exact the limit is."""


@final
class Watchdog:
    """A thread that reports after `limit_s` what the worker is computing, and at each doubling.

    It needs the interpreter lock. If C code holds that all the time, the parent notices by itself.
    """

    def __init__(self, limit_s: float, report: Callable[[SlowTask], object]) -> None:
        """Keep the arguments. No thread is started before `start`.

        Args:
            limit_s: How long a block may take.
            report: Called with what is reported, in the thread.
        """
        self._limit_s = limit_s
        self._report = report
        self._current: tuple[int, float] | None = None
        """The task that the worker computes, and when it began."""

    def start(self) -> None:
        """Start the thread, unless the system allows no further threads.

        `threading.Thread.start` would wait for the thread, without limit if memory is scarce.
        """
        with contextlib.suppress(RuntimeError, MemoryError):
            _thread.start_new_thread(self._watch, ())

    def begin(self, task: int) -> None:
        """Note that the worker begins to compute the block of a task."""
        self._current = task, time.monotonic()

    def end(self) -> None:
        """Note that it is done with the block."""
        self._current = None

    def _watch(self) -> None:
        reported, limit_s = None, self._limit_s
        while True:
            time.sleep(self._limit_s / _POLLS_PER_LIMIT)
            current = self._current
            if current is None:
                continue
            if current is not reported:
                limit_s = self._limit_s
            task, began = current
            elapsed_s = time.monotonic() - began
            if elapsed_s >= limit_s:
                reported, limit_s = current, 2 * elapsed_s
                with contextlib.suppress(OSError):  # the parent is gone
                    self._report(SlowTask(task, elapsed_s, self._find_step()))

    def _find_step(self) -> str:
        """Return the step that the first thread in one is in, or an empty string."""
        own = _thread.get_ident()
        frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - documented
        for thread, frame in sorted(frames.items()):
            found = None if thread == own else describe_running(frame)
            if found is not None:
                return found
        return ""


@final
class ParentConnection:
    """Sends the messages of a worker."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._unsent_logs: deque[RelayedLog] = deque()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send a message, after the logs that are not yet sent."""
        with self._lock:
            self._send_logs()
            self._channel.send(message, descriptors)
        self._send_logs_unless_busy()

    def send_log(self, log: RelayedLog) -> None:
        """Send a log record or a warning, or leave it to the thread that is sending. Never waits.

        The garbage collector may run in the middle of `send`, and what it finalizes may warn. Then
        this thread already holds the lock.
        """
        self._unsent_logs.append(log)
        self._send_logs_unless_busy()

    def _send_logs_unless_busy(self) -> None:
        while self._unsent_logs and self._lock.acquire(blocking=False):
            try:
                self._send_logs()
            finally:
                self._lock.release()

    def _send_logs(self) -> None:
        while self._unsent_logs:
            self._channel.send(LogRelay(self._unsent_logs.popleft()))


def run_worker(descriptor: int) -> None:
    """Compute until the parent closes the socket.

    Args:
        descriptor: The socket.
    """
    channel = Channel(socket.socket(fileno=descriptor))
    init = channel.receive()
    if init is None:
        return
    if not isinstance(init, Init):
        raise InvalidMessageError(f"The first message is {init!r}.")
    parent = ParentConnection(channel)
    install_relay(init.relay_settings, parent.send_log, init.worker)
    refuse_breakpoints()
    keep_memory_warm()
    try:
        jobs = _load_jobs(init, channel.take_descriptor())
        worker = Worker(jobs, parent, init.worker, permits=channel.take_descriptor())
        gc.freeze()  # what is imported by now stays: a search through PyTorch takes 80 ms
    except BaseException as error:
        parent.send(InitFailed(dump_error(error, where=f"Starting worker {init.worker}")))
        return
    parent.send(Ready())
    worker.run(channel)


def _load_jobs(init: Init, descriptor: int) -> Sequence[Job]:
    return load_jobs(
        PlanPayload(descriptor, init.sizes, init.pytrees).unpack(),
        worker=init.worker,
        num_workers=init.num_workers,
        pytrees=init.pytrees,
        relay_settings=init.relay_settings,
    )


@final
class Worker:
    """Computes tasks in the order in which they arrive, and sends the results."""

    def __init__(
        self, jobs: Sequence[Job], parent: ParentConnection, number: int, *, permits: int
    ) -> None:
        policy = jobs[0].policy  # all jobs of a pool have the same
        self._parent = parent
        self._name = f"worker {number}"
        self._encoder = BlockEncoder(policy, self._name)
        self._permits = permits
        self._arena = Arena(policy)
        self._message_bytes = policy.message_bytes
        self._watchdog = Watchdog(policy.slow_task_s, parent.send)
        self._tasks: deque[ComputeTask] = deque()
        self._jobs = [OpenJob(job, self._arena.empty) for job in jobs]

    def run(self, channel: Channel) -> None:
        """Handle messages until the parent is gone."""
        self._watchdog.start()
        while (task := self._begin_task(channel)) is not None:
            self._compute(task)

    def _begin_task(self, channel: Channel) -> ComputeTask | None:
        """Wait for the next task that may begin; return `None` if the parent is gone."""
        has_permit = False
        while True:
            if self._tasks and not has_permit:
                has_permit = take_permits(self._permits, 1) == 1
            if self._tasks and has_permit:
                # The permit may be that of a later task, if the parent has withdrawn this one
                # before it sent the later one.
                for message in channel.receive_ready():
                    self._handle(message)
                if self._tasks:
                    return self._tasks.popleft()
            # There is no task, or all were taken back, and the messages that withdraw them follow.
            message = channel.receive()
            if message is None:
                return None
            self._handle(message)

    def _handle(self, message: object) -> None:
        match message:
            case ComputeTask():
                self._arena.release(message.freed_slots)
                self._tasks.append(message)
            case ReleaseSlots():
                self._arena.release(message.freed_slots)
                closed = self._arena.close_surplus()
                if closed:
                    self._parent.send(SlotsClosed(closed))
            case WithdrawTask():
                (withdrawn,) = [task for task in self._tasks if task.task == message.task]
                self._tasks.remove(withdrawn)
            case TrimMemory():
                self._arena.release(message.freed_slots)
                self._parent.send(SlotsClosed(self._arena.close_free(), has_trimmed=True))
            case _:
                raise InvalidMessageError(f"The parent sent {message!r}.")

    def _compute(self, task: ComputeTask) -> None:
        """Compute a range and send its result."""
        job = self._jobs[task.job]
        try:
            self._watchdog.begin(task.task)
            if task.is_suspect:
                for probe in probes_of(job.cut, task.positions):
                    self._parent.send(Progress(probe.position, probe.record))
                    job.run_probe(probe)
            begin = time.perf_counter()
            self._arena.begin(len(task.positions))
            result = job.read(task.positions)
            self._watchdog.end()  # sending waits for the parent
            self._send(task, job, result, begin)
        except ConnectionError:
            raise
        except BaseException as error:  # no memory, a mistake of ours, KeyboardInterrupt of users
            self._watchdog.end()
            empty = self._encoder.encode_failure(job.cut, error)
            self._parent.send(
                TaskDone(task.task, empty.content, [], [], [], empty.error, BlockTimes())
            )

    def _send(self, task: ComputeTask, job: OpenJob, result: BlockResult, begin: float) -> None:
        """Send the result of a task that was begun at `begin`."""
        computed_at = time.perf_counter()
        content, buffers, error = self._encoder.encode(job.cut, result)
        views = [buffer.raw() for buffer in buffers]
        is_in_message = len(content) <= self._message_bytes
        if not is_in_message:
            views.append(memoryview(content))
        transfer = self._arena.transfer(views, len(task.positions))
        now = time.perf_counter()
        self._parent.send(
            TaskDone(
                task.task,
                content if is_in_message else None,
                transfer.slot_ranges,
                transfer.opened,
                transfer.closed,
                error,
                BlockTimes(
                    result.step_times,
                    now - begin,
                    now - computed_at,
                    began_at=begin,
                    worker=self._name,
                    process=os.getpid(),
                    work=result.work,
                ),
            ),
            transfer.descriptors,
        )
        for descriptor in transfer.descriptors:
            os.close(descriptor)


def refuse_breakpoints() -> None:
    """Let `breakpoint()` raise in this process, unless the user has chosen a debugger for it."""
    if "PYTHONBREAKPOINT" not in os.environ and sys.breakpointhook is sys.__breakpointhook__:
        sys.breakpointhook = _refuse


def _refuse(*args: Any, **kwargs: Any) -> None:
    del args, kwargs
    raise WorkerError(
        "`breakpoint()` was called in a worker process, which has no terminal. Compute everything "
        "in this process to stop there: pass `worker_count=0`, or call `gristmill.config.update("
        '"py_debug_mode", True)` before you make the iterator, which also does without threads and '
        "`mp_prefetch`. A remote debugger works in workers: set PYTHONBREAKPOINT to its function."
    )
