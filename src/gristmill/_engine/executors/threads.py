"""Compute ranges in threads: for reads that wait, and for code that lets go of the interpreter."""

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import final

from gristmill._base.background import Background
from gristmill._engine.blocks.block import Block
from gristmill._engine.blocks.block_result import BlockResult
from gristmill._engine.executors.base import Executor
from gristmill._engine.tuning.waiting import Stopwatch
from gristmill.errors import ClosedError


@final
class _Task:
    __slots__ = ("is_cancelled", "is_handed_out", "positions", "result")

    def __init__(self, positions: range) -> None:
        self.positions = positions
        self.result: BlockResult | None = None
        self.is_handed_out = False
        self.is_cancelled = False


@final
class ThreadExecutor(Executor):
    """Computes up to `num_threads` ranges at a time; with one, in the thread that asks."""

    block_seconds = 0.005

    def __init__(self, read: Callable[[range], BlockResult], *, most_positions_ahead: int) -> None:
        self.num_threads = 1
        self.has_waited = False
        """Whether the last range that was read in the thread that asks mostly waited."""
        self._read = read
        self._most_ahead = most_positions_ahead
        self._tasks: deque[_Task] = deque()
        self._positions_ahead = 0
        self._todo: SimpleQueue[_Task | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self._threads: list[Background] = []
        self._is_interrupted = False
        self._is_closed = False

    @property
    def has_room(self) -> bool:
        if not self._tasks:
            return True
        if self.num_threads == 1 or self._positions_ahead >= self._most_ahead:
            return False
        unfinished = sum(task.result is None for task in self._tasks)
        return unfinished < 2 * self.num_threads  # one at work and one in store for each

    def resize(self, num_threads: int) -> None:
        """Use this many threads from now on."""
        self.num_threads = num_threads
        needed = num_threads if num_threads > 1 else 0
        for _ in self._threads[needed:]:
            self._todo.put(None)
        del self._threads[needed:]

    def submit(self, positions: range) -> None:
        task = _Task(positions)
        self._tasks.append(task)
        self._positions_ahead += len(positions)
        if self.num_threads > 1:
            self._start_threads()
            task.is_handed_out = True
            self._todo.put(task)

    def collect(self, *, has_more: bool) -> BlockResult | None:
        head = self._tasks[0]
        while not self._done.empty():  # what was done before is seen without being told
            self._done.get()
        if not head.is_handed_out:
            head.result = self._read_here(head.positions)
        while head.result is None:
            if self._is_interrupted or self._is_closed:
                raise ClosedError("The threads were told to stop.")
            self._done.get()
            if has_more and head.result is None and self.has_room:
                return None
        self._tasks.popleft()
        self._positions_ahead -= len(head.positions)
        return head.result

    def cancel(self) -> None:
        for task in self._tasks:
            task.is_cancelled = True
        self._tasks.clear()
        self._positions_ahead = 0
        self._is_interrupted = False

    def interrupt(self) -> None:
        self._is_interrupted = True
        self._done.put(None)

    def close(self) -> None:
        self._is_closed = True
        for task in list(self._tasks):
            task.is_cancelled = True
        self.interrupt()
        for _ in self._threads:
            self._todo.put(None)

    def _read_here(self, positions: range) -> BlockResult:
        watch = Stopwatch()
        result = self._read(positions)
        watch.stop()
        self.has_waited = watch.has_waited
        return result

    def _start_threads(self) -> None:
        while len(self._threads) < self.num_threads and not self._is_closed:
            thread = Background(
                _work,
                (self._read, self._todo, self._done),
                name=f"gristmill-read-{len(self._threads)}",
            )
            self._threads.append(thread)
            thread.start()
            if self._is_closed:  # while this thread was starting it
                self._todo.put(None)


def _work(
    read: Callable[[range], BlockResult],
    todo: "SimpleQueue[_Task | None]",
    done: "SimpleQueue[None]",
) -> None:
    """Do one task after the other; holds no more than it needs, so that the rest can be freed."""
    while (task := todo.get()) is not None:
        if not task.is_cancelled:
            try:
                task.result = read(task.positions)
            except BaseException as error:  # whatever it is, the consumer raises it
                task.result = BlockResult(Block.empty(), error)
            done.put(None)
        del task
