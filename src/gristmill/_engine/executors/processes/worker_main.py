"""Main loop of a worker process: it computes the ranges that the parent sends."""

import gc
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pickle import PickleBuffer
from typing import final

from gristmill._base.aligned_alloc import keep_memory_warm
from gristmill._base.tree import refuse_pytrees
from gristmill._engine.access.cut import cut_plan
from gristmill._engine.access.reader import open_cut
from gristmill._engine.blocks.block import Block
from gristmill._engine.blocks.block_result import BlockResult
from gristmill._engine.blocks.error_notes import add_context
from gristmill._engine.executors.ipc.arena import Arena
from gristmill._engine.executors.ipc.channel import Channel, InvalidMessageError
from gristmill._engine.executors.ipc.log_relay import RelayedLog, apply_filters, install_relay
from gristmill._engine.executors.ipc.plan_payload import PlanPayload
from gristmill._engine.executors.ipc.remote_error import dump_error
from gristmill._engine.executors.ipc.serialize import Sender, classes_of
from gristmill._engine.executors.processes.job import Job
from gristmill._engine.executors.processes.messages import (
    BlockContent,
    ComputeTask,
    Init,
    InitFailed,
    LogRelay,
    Message,
    Progress,
    Ready,
    ReleaseSlots,
    SentSkip,
    SlotsClosed,
    TaskDone,
    TaskWithdrawn,
    TrimMemory,
    WithdrawTask,
)
from gristmill._engine.executors.processes.threaded_reader import ThreadedReader
from gristmill._engine.executors.reader_names import with_reader_name
from gristmill._plan.nodes.steps import RandomMapNode


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
    keep_memory_warm()
    try:
        jobs = _load_jobs(init, channel.take_descriptor())
        worker = Worker(jobs, parent, init.worker)
        gc.freeze()  # what is imported by now stays: a search through PyTorch takes 80 ms
    except BaseException as error:
        parent.send(InitFailed(dump_error(error, where=f"Starting worker {init.worker}")))
        return
    parent.send(Ready())
    worker.run(channel)


def _load_jobs(init: Init, descriptor: int) -> Sequence[Job]:
    """Call the user's `worker_init_fn`, and load the plans."""
    payload = PlanPayload(descriptor, init.sizes, init.pytrees).unpack()
    worker_init_fn = next(payload)  # first: loading the plans may need what it does
    if worker_init_fn is not None:
        worker_init_fn(init.worker, init.num_workers)
    jobs: Sequence[Job] = next(payload)
    refuse_pytrees(classes_of(init.pytrees))
    apply_filters(init.relay_settings)
    return jobs


@final
class Worker:
    """Computes tasks in the order in which they arrive, and sends the results."""

    def __init__(self, jobs: Sequence[Job], parent: ParentConnection, number: int) -> None:
        policy = jobs[0].policy  # all jobs of a pool have the same
        self._parent = parent
        self._sender = Sender(policy)
        self._number = number
        self._arena = Arena(policy)
        self._message_bytes = policy.message_bytes
        self._tasks: deque[ComputeTask] = deque()
        self._jobs = [_OpenJob(job, self._arena) for job in jobs]

    def run(self, channel: Channel) -> None:
        """Handle messages until the parent is gone."""
        while (message := channel.receive()) is not None:
            self._handle(message)
            while self._tasks:
                for message in channel.receive_ready():
                    self._handle(message)
                if self._tasks:
                    self._compute(self._tasks.popleft())

    def _handle(self, message: object) -> None:
        match message:
            case ComputeTask():
                self._arena.release(message.freed_slots)
                self._tasks.append(message)
            case ReleaseSlots():
                self._arena.release(message.freed_slots)
            case WithdrawTask():
                for task in self._tasks:
                    if task.task == message.task:
                        self._tasks.remove(task)
                        self._parent.send(TaskWithdrawn(message.task))
                        break
            case TrimMemory():
                self._arena.release(message.freed_slots)
                self._parent.send(SlotsClosed(self._arena.close_free()))
            case _:
                raise InvalidMessageError(f"The parent sent {message!r}.")

    def _compute(self, task: ComputeTask) -> None:
        """Compute a range and send its result."""
        job = self._jobs[task.job]
        try:
            if task.is_suspect:
                self._compute_one_by_one(job, task.positions)
            begin = time.perf_counter()
            self._arena.begin(len(task.positions))
            self._send(task, job, job.read(task.positions), begin)
        except ConnectionError:
            raise
        except BaseException as error:  # no memory, a mistake of ours, KeyboardInterrupt of users
            empty, _ = self._dump_content(job, BlockResult(Block.empty()), [])
            self._parent.send(TaskDone(task.task, empty, [], [], [], self._dump_error(error), ()))

    def _send(self, task: ComputeTask, job: "_OpenJob", result: BlockResult, begin: float) -> None:
        """Send the result of a task that was begun at `begin`."""
        computed_at = time.perf_counter()
        error = result.error
        skips = [
            SentSkip(skip.cursor, skip.record, self._dump_error(skip.error))
            for skip in result.skips
        ]
        try:
            content, buffers = self._dump_content(job, result, skips)
        except Exception:
            block, error = self._sendable_part(job, result.block)
            content, buffers = self._dump_content(job, replace(result, block=block), skips)
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
                None if error is None else self._dump_error(error),
                result.step_times,
                now - begin,
                now - computed_at,
            ),
            transfer.descriptors,
        )
        for descriptor in transfer.descriptors:
            os.close(descriptor)

    def _dump_content(
        self, job: "_OpenJob", result: BlockResult, skips: list[SentSkip]
    ) -> tuple[bytes, list[PickleBuffer]]:
        block = result.block
        generators = block.generators if job.draws_above else None
        return self._sender.dump(
            BlockContent(
                block.data,
                block.lineage,
                generators,
                skips,
                result.filter_counts,
                result.has_waited,
            )
        )

    def _dump_error(self, error: BaseException) -> bytes:
        return dump_error(error, where=f"Traceback in worker {self._number}")

    def _sendable_part(self, job: "_OpenJob", block: Block) -> tuple[Block, BaseException]:
        """Return the elements before the one that cannot be sent, and the error that names it."""
        for row, element in enumerate(block.rows()):
            try:
                self._sender.dump(element)
            except Exception as error:
                return block[:row], add_context(error, job.cut.base, block.lineage, row)
        raise AssertionError("every element can be sent, but not all of them together")

    def _compute_one_by_one(self, job: "_OpenJob", positions: range) -> None:
        """Compute each record by itself, then each element, and report which one comes next.

        The range has killed a worker. If one of its records or elements kills this worker, too, the
        parent knows which one.
        """
        cut = job.cut
        low = cut_plan(cut.plan, skips_errors=cut.skips_errors, below_batches=True)
        read_records, read_elements = (
            with_reader_name(open_cut(each), num_threads=job.num_threads) for each in (low, cut)
        )
        size = cut.base.records_per_position
        for position in positions:
            records = range(position * size, min((position + 1) * size, low.base.length()))
            for record in records:
                self._parent.send(Progress(position, record))
                read_records(range(record, record + 1))
            self._parent.send(Progress(position, None))
            read_elements(range(position, position + 1))


@final
class _OpenJob:
    """A job, and the reader of its plan."""

    def __init__(self, job: Job, arena: Arena) -> None:
        cut = self.cut = job.cut
        self.num_threads = job.read.num_threads
        above = cut.steps[cut.num_read :]
        self.draws_above = any(isinstance(step, RandomMapNode) for step in above)
        """Whether a step above the cut draws random numbers, and so needs the generators."""
        self.read = ThreadedReader(
            cut,
            open_cut(cut, arena.empty, policy=job.policy),
            num_threads=job.read.num_threads,
            most_ahead=job.read.prefetch_buffer_size,
            policy=job.policy,
        )
