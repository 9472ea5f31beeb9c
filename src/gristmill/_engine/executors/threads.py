"""Executor that computes ranges in threads: for reads that wait and code that releases the lock.

A thread that reads records has a name as in Grain: `grain-prefetch_0` and so on. Sources parse the
name of the current thread to choose one of several streams, so two threads that read at the same
time never have the same number, and numbers are below `num_threads`. A thread has such a name only
while it reads.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import final

from gristmill._base.threads.background import Background
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.executors.base import Executor
from gristmill._engine.tuning.measure import BlockStats, Stopwatch, unexplained_wait_s
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.timeline import Track, Work, current_track, unfinished
from gristmill.errors import ClosedError

_PREFIX = "grain-prefetch_"


@contextmanager
def named_reader(number: int) -> Generator[None]:
    """Set the name of the current thread to that of a reader, while the context lasts."""
    thread = threading.current_thread()
    name = thread.name
    thread.name = f"{_PREFIX}{number}"
    try:
        yield
    finally:
        thread.name = name


def with_reader_name(
    read: Callable[[range], BlockResult], *, num_threads: int
) -> Callable[[range], BlockResult]:
    """Return a function that reads under the name of reader 0, in a thread that is not a reader.

    With `num_threads=0` Grain reads in the thread of the consumer, under its own name.
    """
    if num_threads < 1:
        return read

    def read_named(positions: range) -> BlockResult:
        if threading.current_thread().name.startswith(_PREFIX):
            return read(positions)
        with named_reader(0):
            return read(positions)

    return read_named


@final
class _RangeTask:
    """A range, and its result once a thread has computed it."""

    __slots__ = ("begun", "is_cancelled", "is_queued", "num_concurrent", "positions", "result")

    def __init__(self, positions: range, *, num_concurrent: int) -> None:
        self.positions = positions
        self.num_concurrent = num_concurrent
        """How many tasks, this one included, threads compute at the same time."""
        self.result: BlockResult | None = None
        self.is_queued = False
        """Whether the threads have it. Otherwise the collecting thread computes it."""
        self.begun: tuple[Track, float] | None = None
        """The thread that has begun to compute it, and when."""
        self.is_cancelled = False


@final
class ThreadExecutor(Executor):
    """Computes up to `num_threads` ranges at a time; with one, in the thread that collects."""

    def __init__(
        self,
        read: Callable[[range], BlockResult],
        *,
        most_positions_ahead: int,
        policy: TuningPolicy,
    ) -> None:
        super().__init__(policy)
        self.num_threads = 1
        self._read = read
        self._most_ahead = most_positions_ahead
        self._tasks: deque[_RangeTask] = deque()
        self._positions_ahead = 0
        self._abandoned: list[_RangeTask] = []
        """Cancelled tasks that a thread had begun."""
        self._todo: SimpleQueue[_RangeTask | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self._threads: list[Background] = []
        self._numbers: SimpleQueue[int] = SimpleQueue()
        """The numbers of threads that do not read at the moment."""
        self._num_numbers = 0
        self._is_interrupted = False
        self._is_closed = False

    @property
    def target_block_s(self) -> float:
        return self.policy.thread_block_s

    @property
    def has_room(self) -> bool:
        if not self._tasks:
            return True
        if self.num_threads == 1 or self._positions_ahead >= self._most_ahead:
            return False
        return self._num_unfinished < self.policy.threads_tasks * self.num_threads

    @property
    def is_idle(self) -> bool:
        """Whether no thread computes a task, not even a cancelled one."""
        self._abandoned = [task for task in self._abandoned if task.result is None]
        return not self._abandoned and not self._num_unfinished

    def resize(self, num_threads: int) -> None:
        """Use this many threads from now on."""
        self.num_threads = num_threads
        needed = num_threads if num_threads > 1 else 0
        for number in range(self._num_numbers, needed):
            self._numbers.put(number)
        self._num_numbers = max(self._num_numbers, needed)
        for _ in self._threads[needed:]:
            self._todo.put(None)
        del self._threads[needed:]

    def submit(self, positions: range) -> None:
        num_concurrent = min(self.num_threads, 1 + self._num_unfinished)
        task = _RangeTask(positions, num_concurrent=num_concurrent)
        self._tasks.append(task)
        self._positions_ahead += len(positions)
        if self.num_threads > 1:
            self._start_threads()
            task.is_queued = True
            self._todo.put(task)

    def collect(self, *, has_more: bool) -> BlockResult | None:
        head = self._tasks[0]
        while not self._done.empty():  # tasks that are done by now need no notification
            self._done.get()
        if not head.is_queued:
            head.result = _compute(self._read, head)
        while head.result is None:
            if self._is_interrupted or self._is_closed:
                raise ClosedError("The threads were stopped.")
            self._done.get()
            if has_more and head.result is None and self.has_room:
                return None
        self._tasks.popleft()
        self._positions_ahead -= len(head.positions)
        return head.result

    def pending_work(self) -> Sequence[Work]:
        now, works = time.perf_counter(), list[Work]()
        for task in (*self._abandoned, *self._tasks.copy()):  # another thread may change them
            result, begun = task.result, task.begun
            if result is not None:
                works += result.work
            elif begun is not None:
                works.append(unfinished(begun[0], now - begun[1]))
        return works

    def cancel(self) -> None:
        for task in self._tasks:
            task.is_cancelled = True
        begun = [task for task in self._tasks if task.begun]
        self._abandoned = [task for task in self._abandoned + begun if task.result is None]
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

    @property
    def _num_unfinished(self) -> int:
        return sum(task.result is None for task in self._tasks)

    def _start_threads(self) -> None:
        while len(self._threads) < self.num_threads and not self._is_closed:
            thread = Background(
                _work,
                (self._read, self._todo, self._done, self._numbers),
                name=f"gristmill-read-{len(self._threads)}",
            )
            self._threads.append(thread)
            thread.start()
            if self._is_closed:  # while this thread was starting it
                self._todo.put(None)


def _work(
    read: Callable[[range], BlockResult],
    todo: "SimpleQueue[_RangeTask | None]",
    done: "SimpleQueue[None]",
    numbers: "SimpleQueue[int]",
) -> None:
    """Compute one task after the other. Holds no reference to the executor or to past results."""
    current_track()  # under the name of the thread, not under that of a reader
    while (task := todo.get()) is not None:
        if not task.is_cancelled:
            task.begun = current_track(), time.perf_counter()
            number = numbers.get()
            try:
                with named_reader(number):
                    task.result = _compute(read, task)
            except BaseException as error:  # whatever it is, the consumer raises it
                task.result = BlockResult(Block.empty(), error)
            finally:
                numbers.put(number)
            if task.is_cancelled:
                task.result = BlockResult(Block.empty())  # frees the elements
            done.put(None)
        del task


def _compute(read: Callable[[range], BlockResult], task: _RangeTask) -> BlockResult:
    watch = Stopwatch()
    result = read(task.positions)
    watch.stop()
    waited_s = unexplained_wait_s(
        wall_s=watch.wall_s, cpu_s=watch.cpu_s, num_concurrent=task.num_concurrent
    )
    result.stats = BlockStats(
        num_elements=len(result.block),
        num_positions=len(task.positions),
        wall_s=watch.wall_s,
        cpu_s=watch.cpu_s,
        waited_s=waited_s,
    )
    result.work = (Work(current_track(), watch.began_at, result.step_times),)
    result.reading = None  # another thread continues with it
    return result
