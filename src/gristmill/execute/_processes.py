"""Compute ranges in worker processes: for Python code, on several cores.

Ranges are handed out one by one to whoever is free, so a slow record delays nobody but itself; the
outcomes are put back in order. While others would wait for the earliest range, more are handed
out, as far as the memory goes. A worker that dies is replaced, and its ranges are handed out again:
they are pure functions, so nothing is lost, repeated or changed.
"""

import os
from collections import deque
from typing import final

from gristmill.errors import ClosedError, PlanError
from gristmill.execute._block import Block
from gristmill.execute._crew import Crew
from gristmill.execute._executor import Executor
from gristmill.execute._outcome import Outcome
from gristmill.execute._reader import Cut
from gristmill.execute._task import Task
from gristmill.observe import Counters
from gristmill.options import ReadOptions, WorkerOptions

MOST_BLOCKS = 64
"""Ranges under way for each worker, however slow the earliest is."""

CALM_BLOCKS = 64
"""So many without a worker having to wait, and less is taken on: memory in use stays warm."""


@final
class ProcessExecutor(Executor):
    """Computes ranges in processes of their own."""

    block_seconds = 0.005

    def __init__(
        self,
        cut: Cut,
        *,
        num_workers: int,
        buffer_size: int,
        read: ReadOptions,
        options: WorkerOptions,
        counters: Counters,
    ) -> None:
        self._num_workers = num_workers
        self._most_positions_ahead = num_workers * (1 + buffer_size)
        self._asked_budget = options.memory_budget_bytes
        self._budget = self._asked_budget or _memory_bytes() // 4
        self._counters = counters
        self._tasks: deque[Task] = deque()
        self._todo: deque[Task] = deque()
        self._next_number = 0
        self._most_blocks_ahead = 2 * num_workers
        self._calm_blocks = 0
        self._bytes_per_position = 0.0
        self._is_interrupted = False
        self._is_closed = False
        self._crew = Crew(
            (cut, options.init_fn, read),
            cut=cut,
            num_workers=num_workers,
            options=options,
            todo=self._todo,
            counters=counters,
        )

    def start(self) -> None:
        """Start the workers, and do not wait for them."""
        self._crew.start()

    @property
    def is_ready(self) -> bool:
        """Whether the workers are up."""
        return self._crew.is_ready

    @property
    def has_room(self) -> bool:
        num_tasks = len(self._tasks)
        if num_tasks < self._num_workers:
            return True
        positions = sum(len(task.positions) for task in self._tasks)
        if positions * self._bytes_per_position >= self._budget:
            return False
        return num_tasks < self._most_blocks_ahead or positions < self._most_positions_ahead

    @property
    def most_positions(self) -> int | None:
        if not self._bytes_per_position:
            return None
        share = self._budget / (2 * self._num_workers)
        return max(1, int(share / self._bytes_per_position))

    def submit(self, positions: range) -> None:
        self._crew.start()
        task = Task(self._next_number, positions)
        self._next_number += 1
        self._tasks.append(task)
        self._todo.append(task)
        self._crew.hand_out(self._tasks)

    def collect(self, *, has_more: bool) -> Outcome | None:
        head = self._tasks[0]
        while not head.is_done:
            if self._is_interrupted or self._is_closed:
                raise ClosedError("The workers were told to stop.")
            if self._crew.failure is not None:
                return Outcome(Block.empty(), self._crew.failure)
            if has_more and self._looks_further():
                return None
            self._crew.wait()
            self._crew.hand_out(self._tasks)
        self._tasks.popleft()
        self._settle()
        self._count()
        return self._checked(head)

    def cancel(self) -> None:
        for task in self._tasks:
            task.is_cancelled = True
        self._tasks.clear()
        self._todo.clear()
        self._is_interrupted = False

    def interrupt(self) -> None:
        self._is_interrupted = True
        self._crew.wake()

    def close(self) -> None:
        self._is_closed = True
        self._crew.close()

    def _looks_further(self) -> bool:
        """Take on more than planned when a worker would wait for the earliest range."""
        if self._todo or not self._crew.has_idle:
            return False
        if self.has_room:
            return True
        is_full = len(self._tasks) >= self._most_blocks_ahead
        if is_full and self._most_blocks_ahead < MOST_BLOCKS * self._num_workers:
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
        if self._asked_budget is not None and needed > self._asked_budget:
            error = PlanError(
                f"`memory_budget_bytes` is {self._asked_budget:,}, and one element takes "
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
        counters.num_workers = self._num_workers


def _memory_bytes() -> int:
    """Say how much memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
