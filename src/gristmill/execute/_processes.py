"""Compute ranges in worker processes: for Python code, on several cores.

Ranges are handed out one by one to whoever is free, so a slow record delays nobody but itself; the
outcomes are put back in order. While others would wait for the earliest range, more are handed
out, as far as the memory goes. A worker that dies is replaced, and its ranges are handed out again:
they are pure functions, so nothing is lost, repeated or changed.
"""

from collections import deque
from typing import final

from gristmill.errors import ClosedError, PlanError
from gristmill.execute._block import Block
from gristmill.execute._executor import Executor
from gristmill.execute._outcome import Outcome
from gristmill.execute._pool import Pool
from gristmill.execute._reader import Cut
from gristmill.execute._task import Task
from gristmill.options import ReadOptions

MOST_BLOCKS = 64
"""Ranges under way for each worker, however slow the earliest is."""

LATE = 3.0
"""How many times the usual time the earliest range takes when others go on without it."""

SPARE_BYTES = 128 << 20
"""What may be ahead of a late range, unless the user grants another amount."""

WARM_BYTES = 4 << 20
"""A block of many small batches takes no more: what does not fit into a cache is slower to fill."""

CALM_BLOCKS = 64
"""So many without a worker having to wait, and less is taken on: memory in use stays warm."""


@final
class ProcessExecutor(Executor):
    """Computes ranges in processes of their own."""

    block_seconds = 0.016
    """Longer than others: each wakes threads of the parent, on cores that the workers need."""

    def __init__(
        self,
        cut: Cut,
        pool: Pool,
        *,
        buffer_size: int,
        read: ReadOptions,
    ) -> None:
        self._pool = pool
        self._job = pool.join(cut, read)
        self._buffer_size = buffer_size
        self._budget = pool.options.memory_budget_bytes
        self._counters = pool.counters
        self._tasks: deque[Task] = deque()
        self._todo = pool.todo
        self._most_blocks_ahead = 2 * pool.num_workers
        self._calm_blocks = 0
        self._usual_seconds = self.block_seconds
        self._bytes_per_position = 0.0
        self._is_interrupted = False
        self._is_closed = False
        self._is_disposed = False
        self._crew = pool.crew

    def start(self) -> None:
        """Start the workers, and do not wait for them."""
        self._crew.start()

    @property
    def is_ready(self) -> bool:
        """Whether the workers are up."""
        return self._crew.is_ready

    def take_failure(self) -> BaseException | None:
        """Give the reason why the workers will not come up, if there is one."""
        return self._crew.take_failure()

    @property
    def _num_workers(self) -> int:
        """Its share of the workers: what it has under way keeps so many busy."""
        return -(-self._pool.num_workers // self._pool.num_users)

    @property
    def _wanted_positions(self) -> int:
        return self._num_workers * (1 + self._buffer_size)

    @property
    def has_room(self) -> bool:
        num_tasks = len(self._tasks)
        if num_tasks < self._num_workers:
            return True
        positions = sum(len(task.positions) for task in self._tasks)
        needed = positions * self._bytes_per_position
        if self._budget is not None and needed >= self._budget:
            return False
        if num_tasks < 2 * self._num_workers or positions < self._wanted_positions:
            return True
        return num_tasks < self._most_blocks_ahead and needed < (self._budget or SPARE_BYTES)

    @property
    def most_positions(self) -> int | None:
        if not self._bytes_per_position:
            return None
        share = (self._budget or SPARE_BYTES) / (2 * self._num_workers)
        share = min(share, WARM_BYTES)
        return max(1, int(share / self._bytes_per_position))

    def submit(self, positions: range) -> None:
        self._crew.start()
        task = Task(next(self._pool.numbers), positions, job=self._job)
        self._tasks.append(task)
        self._todo.append(task)
        self._hand_out()

    def collect(self, *, has_more: bool) -> Outcome | None:
        head = self._tasks[0]
        while not head.is_done:
            if self._is_interrupted or self._is_closed:
                raise ClosedError("The workers were told to stop.")
            failure = self._crew.take_failure()
            if failure is not None:
                return Outcome(Block.empty(), failure)
            patience = self._patience(head) if has_more else None
            if patience == 0.0 and self._looks_further():
                return None
            self._crew.wait(patience or None)
            self._hand_out()
        self._tasks.popleft()
        self._settle()
        self._count()
        outcome = self._checked(head)
        self._usual_seconds += 0.1 * (outcome.seconds - self._usual_seconds)
        return outcome

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        for task in [task for task in self._todo if task.is_cancelled]:
            self._todo.remove(task)
        self._is_interrupted = False

    def interrupt(self) -> None:
        self._is_interrupted = True
        self._crew.wake()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._pool.leave()
        self._crew.wake()

    def dispose(self) -> None:
        self.cancel()
        if not self._is_disposed:
            self._is_disposed = True
            self._pool.dispose()

    def _hand_out(self) -> None:
        """Hand out as much as was asked for: while the consumer pauses nobody hands out more."""
        size = len(self._tasks[-1].positions) if self._tasks else 1
        most = -(-self._wanted_positions // (size * self._num_workers))
        self._crew.hand_out(self._tasks, most=max(2, most))

    def _patience(self, head: Task) -> float | None:
        """Say how long a worker that has nothing to do should wait for the earliest range.

        A little later than usual is no reason to take on more: that takes memory, and fresh pages
        cost more than the wait.
        """
        if self._todo or not self._crew.has_idle:
            return None
        if self.has_room:
            return 0.0
        if self._most_blocks_ahead >= MOST_BLOCKS * self._num_workers:
            return None
        return max(0.0, LATE * self._usual_seconds - self._crew.seconds_at(head))

    def _looks_further(self) -> bool:
        """Take on more than planned."""
        if not self.has_room and len(self._tasks) >= self._most_blocks_ahead:
            self._most_blocks_ahead += self._num_workers
            self._calm_blocks = 0
        return self.has_room

    def _settle(self) -> None:
        """Take on less again when for a while nobody had to wait."""
        self._calm_blocks += 1
        if self._calm_blocks >= CALM_BLOCKS:
            self._calm_blocks = 0
            self._most_blocks_ahead = max(2 * self._num_workers, self._most_blocks_ahead - 1)

    def _checked(self, task: Task) -> Outcome:
        """Give what came of a task, if the memory it takes was granted."""
        needed = task.num_bytes / len(task.positions)
        self._bytes_per_position = max(needed, 0.9 * self._bytes_per_position)
        if self._budget is not None and needed > self._budget:
            error = PlanError(
                f"`memory_budget_bytes` is {self._budget:,}, and one element takes "
                f"{needed:,.0f}. Grant at least that; {2 * self._num_workers} times as much keeps "
                f"{self._num_workers} workers busy."
            )
            return Outcome(Block.empty(), error)
        return task.outcome()

    def _count(self) -> None:
        counters = self._counters
        counters.blocks_ready = sum(task.is_done for task in self._tasks)
        counters.blocks_under_way = len(self._tasks) - counters.blocks_ready
        counters.shared_bytes = self._crew.shared_bytes
        counters.num_workers = self._pool.num_workers
