"""Scheduler: decides which worker computes which task.

It owns the tasks that wait and those that workers have, but no worker: a pool adds and removes
workers by number, reports their replies, and carries out the orders that `assign` returns.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, final

from gristmill._engine.executors.scheduling.task import Reply, Task

MAX_TRIES = 3
"""A task that kills this many workers gets an error instead of another worker."""


@final
@dataclass(frozen=True, slots=True)
class Assignment:
    """A worker has to compute a task, after those that it already has."""

    worker: int
    task: Task


@final
@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A worker has to drop a task that waits in its queue; another worker took it over."""

    worker: int
    task: Task


Order: TypeAlias = Assignment | Withdrawal


@final
class _WorkerQueue:
    """The tasks of one worker, in the order in which it computes them."""

    __slots__ = ("busy_since", "is_ready", "progress", "tasks")

    def __init__(self, now: float) -> None:
        self.tasks: deque[Task] = deque()
        self.is_ready = False
        self.busy_since = now
        """When it began with the first of its tasks."""
        self.progress: tuple[int, int | None] | None = None
        """The position it computes, and the record of it, for a task that killed a worker."""


@final
class Scheduler:
    """Assigns tasks to workers, and assigns them again when workers are slow or die.

    Args:
        block_timeout_s: Seconds that a worker may take for one task.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        *,
        block_timeout_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._block_timeout_s = block_timeout_s
        self._clock = clock
        self._numbers = itertools.count()
        self._pending: deque[Task] = deque()
        self._queues: dict[int, _WorkerQueue] = {}
        self._paused_at = clock()

    # Tasks

    def submit(self, positions: range, *, job: int = 0) -> Task:
        """Return a new task, which waits for a worker."""
        task = Task(next(self._numbers), positions, job=job)
        self._pending.append(task)
        return task

    def cancel(self, tasks: Iterable[Task]) -> None:
        """Drop tasks. A worker that has begun one finishes it; its reply is ignored."""
        for task in tasks:
            task.cancel()
        self._pending = deque(task for task in self._pending if not task.is_cancelled)

    @property
    def has_pending(self) -> bool:
        """Whether a task waits for a worker."""
        return bool(self._pending)

    # Workers

    def add_worker(self, worker: int) -> None:
        """Assign tasks to a worker, which may still be starting."""
        self._queues[worker] = _WorkerQueue(self._clock())

    def mark_ready(self, worker: int) -> None:
        """Note that a worker has started."""
        queue = self._queues[worker]
        queue.is_ready = True
        queue.busy_since = self._clock()

    def is_ready(self, worker: int) -> bool:
        """Return whether a worker has started."""
        return self._queues[worker].is_ready

    @property
    def has_idle_worker(self) -> bool:
        """Whether a worker has no task."""
        return not all(queue.tasks for queue in self._queues.values())

    def remove_worker(
        self, worker: int, *, explain: Callable[[Task, int | None], BaseException]
    ) -> None:
        """Assign the tasks of a dead worker again, before those that wait.

        If the worker reported which position it computed, that position becomes a task of its own.
        A task that has killed `MAX_TRIES` workers is not assigned again.

        Args:
            worker: The number of the dead worker.
            explain: Returns the error of a task that is given up, from the task and the index of
                the record that was being read, if that is known.
        """
        queue = self._queues.pop(worker)
        tasks = list(queue.tasks)
        for task in tasks:
            task.num_holders -= 1
        if queue.is_ready and tasks and tasks[0].is_open:
            tasks[:1] = self._count_death(tasks[0], queue.progress, explain)
        self._pending.extendleft(
            task for task in reversed(tasks) if task.is_open and not task.num_holders
        )

    def _count_death(
        self,
        task: Task,
        progress: tuple[int, int | None] | None,
        explain: Callable[[Task, int | None], BaseException],
    ) -> list[Task]:
        """Note that a worker died of `task`; return the tasks that now stand in its place."""
        task.tries += 1
        remaining = [task]
        position, record = progress or (None, None)
        if position is not None and len(task.positions) > 1:
            whole, task = task, task.split(position, self._numbers)
            remaining = list(whole.subtasks)
        if task.tries >= MAX_TRIES:
            task.error = explain(task, record)
        return remaining

    def clear(self) -> None:
        """Drop all workers and tasks, with the shared memory that replies occupy."""
        self._queues.clear()
        self._pending.clear()

    # Assignment

    def assign(self, *, max_per_worker: int) -> list[Order]:
        """Assign waiting tasks: one to each worker first, then up to `max_per_worker` to each.

        If no task is left, idle workers take over tasks that wait behind a slow one. Should the
        slow worker begin such a task nevertheless, the first reply counts.

        Returns:
            What to send to the workers, in that order.
        """
        orders: list[Order] = []
        for depth in range(1, max_per_worker + 1):
            if not self._pending:
                break
            for worker, queue in self._queues.items():
                if len(queue.tasks) < depth and self._pending:
                    orders.append(self._assign(worker, self._pending.popleft()))
        if not self._pending:
            self._take_over(orders)
        return orders

    def _take_over(self, orders: list[Order]) -> None:
        """Assign tasks that wait in the queue of a busy worker to the idle workers."""
        idle = [worker for worker, queue in self._queues.items() if not queue.tasks]
        if not idle:
            return
        waiting = [
            (task.number, worker, task)
            for worker, queue in self._queues.items()
            for task in itertools.islice(queue.tasks, 1, None)
            if task.num_holders == 1 and task.is_open
        ]
        for idle_worker, (_, slow_worker, task) in zip(idle, sorted(waiting), strict=False):
            orders.append(Withdrawal(slow_worker, task))
            orders.append(self._assign(idle_worker, task))

    def _assign(self, worker: int, task: Task) -> Assignment:
        queue = self._queues[worker]
        if not queue.tasks:
            queue.busy_since = self._clock()
        queue.tasks.append(task)
        task.num_holders += 1
        return Assignment(worker, task)

    def withdraw_all(self) -> list[Withdrawal]:
        """Drop all tasks, at the end of a session.

        Returns:
            What to send to the workers. They finish the tasks that they have begun, whose replies
            are ignored.
        """
        self._pending.clear()
        orders: list[Withdrawal] = []
        for worker, queue in self._queues.items():
            for number, task in enumerate(queue.tasks):
                task.cancel()
                if number:
                    orders.append(Withdrawal(worker, task))
        return orders

    # Messages of workers

    def report_progress(self, worker: int, position: int, record: int | None) -> None:
        """Note which position, and which record of it, a worker is about to compute."""
        self._queues[worker].progress = position, record

    def complete(self, worker: int, number: int, reply: Reply) -> None:
        """Note the reply to the first task of a worker, unless another worker replied before."""
        queue = self._queues[worker]
        task = queue.tasks.popleft()
        assert task.number == number
        task.num_holders -= 1
        queue.busy_since, queue.progress = self._clock(), None
        if not task.is_done:
            task.reply = reply

    def confirm_withdrawal(self, worker: int, number: int) -> None:
        """Note that a worker has dropped a task that another worker took over."""
        queue = self._queues[worker]
        (task,) = [task for task in queue.tasks if task.number == number]
        queue.tasks.remove(task)
        queue.busy_since = self._clock()
        task.num_holders -= 1
        if task.is_open and not task.num_holders:  # the worker that took it over has died
            self._pending.appendleft(task)

    # Time

    def seconds_on(self, task: Task) -> float:
        """Return for how many seconds a worker has been computing a task."""
        started = [
            queue.busy_since
            for queue in self._queues.values()
            if queue.is_ready and queue.tasks and queue.tasks[0] is task
        ]
        return self._clock() - min(started) if started else 0.0

    def resume_timers(self) -> None:
        """Let the timers of the workers run, after `pause_timers`.

        They run only while the pool receives messages: a worker that waits for its message to be
        received is not slow.
        """
        paused_s = self._clock() - self._paused_at
        for queue in self._queues.values():
            queue.busy_since += paused_s

    def pause_timers(self) -> None:
        """Stop the timers of the workers until `resume_timers`."""
        self._paused_at = self._clock()

    @property
    def seconds_to_timeout(self) -> float | None:
        """Seconds until the first worker exceeds its time limit; `None` if no worker has one."""
        if self._block_timeout_s is None:
            return None
        now = self._clock()
        remaining = [
            queue.busy_since + limit_s - now
            for queue in self._queues.values()
            if (limit_s := self._limit_s(queue)) is not None
        ]
        return max(0.0, min(remaining)) if remaining else None

    def overdue_workers(self) -> list[int]:
        """Return the workers that have exceeded their time limit, as of `pause_timers`."""
        if self._block_timeout_s is None:
            return []
        return [
            worker
            for worker, queue in self._queues.items()
            if (limit_s := self._limit_s(queue)) is not None
            and self._paused_at - queue.busy_since > limit_s
        ]

    def _limit_s(self, queue: _WorkerQueue) -> float | None:
        if self._block_timeout_s is None or not queue.tasks or not queue.is_ready:
            return None
        # After a death a worker computes each record, then each element, then the whole range.
        factor = 3 if queue.tasks[0].tries else 1
        return factor * self._block_timeout_s
