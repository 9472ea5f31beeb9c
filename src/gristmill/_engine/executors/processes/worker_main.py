"""The worker's side: a clean interpreter that computes the ranges it is given."""

import gc
import os
import socket
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pickle import PickleBuffer
from typing import Any, final

from gristmill._base.tree import refuse_pytrees
from gristmill._engine.access.cut import Cut, cut_plan
from gristmill._engine.access.reader import open_cut
from gristmill._engine.blocks.block import Block
from gristmill._engine.blocks.block_result import BlockResult
from gristmill._engine.blocks.error_notes import add_context
from gristmill._engine.executors.ipc.arena import Arena
from gristmill._engine.executors.ipc.channel import Channel
from gristmill._engine.executors.ipc.log_relay import apply_filters, install_relay
from gristmill._engine.executors.ipc.plan_payload import PlanPayload
from gristmill._engine.executors.ipc.remote_error import dump_error
from gristmill._engine.executors.ipc.serialize import Sender, classes_of
from gristmill._engine.executors.processes.job import Job
from gristmill._engine.executors.processes.threaded_reader import ThreadedReader
from gristmill._engine.warm_memory import keep_memory_warm
from gristmill._plan.nodes.steps import RandomMapNode
from gristmill.options import ReadOptions

MESSAGE_BYTES = 8192
"""What goes through the socket itself: less than a page is not worth a place in shared memory."""


def run_worker(line: int) -> None:
    """Work until the parent is gone."""
    channel = Channel(socket.socket(fileno=line))
    message = channel.receive()
    if message is None:
        return
    _, number, num_workers, sizes, pytrees, settings = message
    line_to_parent = ParentConnection(channel)
    install_relay(settings, line_to_parent.tell, number)
    keep_memory_warm()
    try:
        orders = PlanPayload(channel.take_descriptor(), sizes, pytrees).unpack()
        worker_init_fn = next(orders)  # first of all: loading the rest may need what it does
        if worker_init_fn is not None:
            worker_init_fn(number, num_workers)
        jobs = next(orders)
        refuse_pytrees(classes_of(pytrees))
        apply_filters(settings)
        worker = Worker(jobs, line_to_parent, number)
        gc.freeze()  # what is imported by now stays: a search through PyTorch takes 80 ms
    except BaseException as error:
        told = dump_error(error, where=f"Starting worker {number}")
        line_to_parent.send(("failed", told))
        return
    line_to_parent.send(("ready",))
    worker.run(channel)


@final
class ParentConnection:
    """The line to the parent, for any thread of this process."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._news: deque[object] = deque()

    def send(self, message: tuple[Any, ...], descriptors: Sequence[int] = ()) -> None:
        """Send a message, after what there is to tell."""
        with self._lock:
            self._send_news()
            self._channel.send(message, descriptors)
        self._try_to_send_news()

    def tell(self, news: object) -> None:
        """Tell of a log line or a warning; it may come out of the middle of `send`.

        For the garbage collector may run there, and what it finds may warn. So this never waits.
        """
        self._news.append(news)
        self._try_to_send_news()

    def _try_to_send_news(self) -> None:
        while self._news and self._lock.acquire(blocking=False):
            try:
                self._send_news()
            finally:
                self._lock.release()

    def _send_news(self) -> None:
        while self._news:
            self._channel.send(("log", self._news.popleft()))


@final
class Worker:
    """Computes ranges, and sends what comes of them."""

    def __init__(self, jobs: Sequence[Job], line: ParentConnection, number: int) -> None:
        self._line = line
        self._sender = Sender()
        self._number = number
        self._arena = Arena()
        self._todo: deque[Any] = deque()
        self._jobs = [_Job(job.cut, job.read, self._arena) for job in jobs]

    def run(self, channel: Channel) -> None:
        """Do what the parent says until it is gone."""
        while (message := channel.receive()) is not None:
            self._note(message)
            while self._todo:
                for message in channel.receive_ready():
                    self._note(message)
                if self._todo:
                    self._work(*self._todo.popleft())

    def _note(self, message: tuple[Any, ...]) -> None:
        match message:
            case ("task", *task, freed):
                self._arena.release(freed)
                self._todo.append(task)
            case ("withdraw", number):  # another one has taken it over
                for task in self._todo:
                    if task[0] == number:
                        self._todo.remove(task)
                        self._line.send(("withdrawn", number))
                        break
            case _:
                raise AssertionError(f"the parent said {message!r}")

    def _work(self, number: int, job_number: int, positions: range, is_careful: bool) -> None:
        """Compute a range and send its outcome."""
        job = self._jobs[job_number]
        try:
            if is_careful:
                self._try_each(job.cut, positions)
            self._arena.begin(len(positions))
            self._send(number, job, job.read(positions), len(positions))
        except ConnectionError:
            raise
        except BaseException as error:  # of ours, no memory; the user's KeyboardInterrupt
            nothing, _ = self._dump_block(job, BlockResult(Block.empty()), [])
            self._line.send(("done", number, nothing, [], [], [], self._dump_error(error), ()))

    def _send(self, number: int, job: "_Job", result: BlockResult, num_positions: int) -> None:
        error = result.error
        skips = [(skip.cursor, skip.record, self._dump_error(skip.error)) for skip in result.skips]
        try:
            payload, buffers = self._dump_block(job, result, skips)
        except Exception:
            block, error = self._sendable_part(job, result.block)
            payload, buffers = self._dump_block(job, replace(result, block=block), skips)
        views = [buffer.raw() for buffer in buffers]
        is_in_band = len(payload) <= MESSAGE_BYTES
        if not is_in_band:
            views.append(memoryview(payload))
        transfer = self._arena.transfer(views, num_positions)
        told = None if error is None else self._dump_error(error)
        self._line.send(
            (
                "done",
                number,
                payload if is_in_band else None,
                transfer.slot_ranges,
                transfer.opened,
                transfer.closed,
                told,
                result.step_seconds,
            ),
            transfer.descriptors,
        )
        for descriptor in transfer.descriptors:
            os.close(descriptor)

    def _dump_block(
        self, job: "_Job", result: BlockResult, skips: list[Any]
    ) -> tuple[bytes, list[PickleBuffer]]:
        block = result.block
        generators = block.generators if job.draws_above else None
        return self._sender.dump(
            (block.data, block.lineage, generators, skips, result.filter_counts, result.has_waited)
        )

    def _dump_error(self, error: BaseException) -> bytes:
        return dump_error(error, where=f"Traceback in worker {self._number}")

    def _sendable_part(self, job: "_Job", block: Block) -> tuple[Block, BaseException]:
        """Give what comes before the element that cannot be sent, and the error that names it."""
        for row, element in enumerate(block.rows()):
            try:
                self._sender.dump(element)
            except Exception as error:
                return block[:row], add_context(error, job.cut.base, block.lineage, row)
        raise AssertionError("every element can be sent, but not all of them together")

    def _try_each(self, cut: Cut, positions: range) -> None:
        """Compute each record by itself, then each element, and say before which it is.

        The range has killed a worker. This finds the one that does it.
        """
        low = cut_plan(cut.plan, skips_errors=cut.skips_errors, below_batches=True)
        read_records, read_elements = open_cut(low), open_cut(cut)
        size = cut.base.records_per_position
        for position in positions:
            records = range(position * size, min((position + 1) * size, low.base.length()))
            for record in records:
                self._line.send(("progress", position, record))
                read_records(range(record, record + 1))
            self._line.send(("progress", position, None))
            read_elements(range(position, position + 1))


@final
class _Job:
    """A plan that the worker reads ranges of."""

    def __init__(self, cut: Cut, options: ReadOptions, arena: Arena) -> None:
        self.cut = cut
        above = cut.steps[cut.num_read :]
        self.draws_above = any(isinstance(step, RandomMapNode) for step in above)
        self.read = ThreadedReader(
            cut,
            open_cut(cut, arena.empty),
            num_threads=options.num_threads,
            most_ahead=options.prefetch_buffer_size,
        )
