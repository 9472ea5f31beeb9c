"""Scheduler: decides which worker computes which task.

It owns the tasks that wait and those that workers have, but no worker: a pool adds and removes
workers by number, reports their replies, and carries out the orders that `assign` returns.
"""

import itertools
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import final

from gristmill._engine.executors.pools.task import (
    Assignment,
    Order,
    Reply,
    Task,
    Withdrawal,
    WorkerQueue,
)

MAX_TRIES = 3
"""A task that kills this many workers gets an error instead of another worker."""


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
        self.slow_task_s = math.inf
        """A worker reports a task that takes longer than this."""
        self._clock = clock
        self._numbers = itertools.count()
        self._pending: deque[Task] = deque()
        self._queues: dict[int, WorkerQueue] = {}
        self._max_per_worker = sys.maxsize
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

    def add_worker(self, worker: int, take_back: Callable[[int], int]) -> None:
        """Assign tasks to a worker, which may still be starting.

        Args:
            worker: The number of the worker.
            take_back: Takes back at most that many tasks from the end of the worker's queue, and
                returns how many: those that it has not begun. It will not begin them any more.
        """
        self._queues[worker] = WorkerQueue(self._clock(), take_back)

    def mark_ready(self, worker: int) -> None:
        """Note that a worker has started."""
        queue = self._queues[worker]
        queue.is_ready = True
        queue.busy_since = self._clock()

    def is_ready(self, worker: int) -> bool:
        """Return whether a worker has started."""
        return self._queues[worker].is_ready

    def has_worker(self, worker: int) -> bool:
        """Return whether a worker was added and not removed."""
        return worker in self._queues

    def is_idle(self, worker: int) -> bool:
        """Return whether a worker has no task."""
        return not self._queues[worker].tasks

    @property
    def has_idle_worker(self) -> bool:
        """Whether a worker has no task and may get one."""
        return any(map(self._is_idle, self._queues.values()))

    def _is_idle(self, queue: WorkerQueue) -> bool:
        return not queue.tasks and queue.num_held < self._max_per_worker

    def remove_worker(
        self,
        worker: int,
        *,
        explain: Callable[[Task, int | None], BaseException],
        is_lost: bool = False,
    ) -> None:
        """Assign the tasks of a dead worker again, before those that wait.

        If the worker reported which position it computed, that position becomes a task of its own.
        A task that has killed `MAX_TRIES` workers is not assigned again.

        Args:
            worker: The number of the dead worker.
            explain: Returns the error of a task that is given up, from the task and the index of
                the record that was being read, if that is known.
            is_lost: Whether the worker disappeared with its machine: then no task killed it.
        """
        queue = self._queues.pop(worker)
        tasks = list(queue.tasks)
        for task in tasks:
            task.num_holders -= 1
        if queue.is_ready and tasks and tasks[0].is_open and not is_lost:
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
        """Note that a worker died of `task`; return the tasks that replace it."""
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

    def assign(
        self,
        *,
        max_per_worker: int,
        num_held: Mapping[int, int] | None = None,
        needs_reply: bool = True,
    ) -> list[Order]:
        """Assign waiting tasks: one to each worker first, then up to `max_per_worker` to each.

        If no task is left, idle workers take over tasks that wait behind a slow one, unless the
        slow worker has begun them by now. A worker that is so slow that another one has replied to
        its task gets no further ones until it replies.

        Args:
            max_per_worker: The maximum number of tasks of a worker.
            num_held: How many results of each worker are in use, where these count like tasks.
            needs_reply: Whether the caller waits for a task that is not done. Then at least one
                worker has a task, however many results are in use.

        Returns:
            What to send to the workers, in that order.
        """
        self._max_per_worker = max_per_worker
        for worker, queue in self._queues.items():
            queue.num_held = num_held.get(worker, 0) if num_held else 0
        orders: list[Order] = []
        self._distribute(orders, max_per_worker, needs_reply=needs_reply)
        while not self._pending and self.has_idle_worker and self._take_over(orders):
            self._distribute(orders, max_per_worker, needs_reply=needs_reply)
        return orders

    def _distribute(self, orders: list[Order], max_per_worker: int, *, needs_reply: bool) -> None:
        idle = [worker for worker, queue in self._queues.items() if self._is_idle(queue)]
        if needs_reply and not any(queue.tasks for queue in self._queues.values()):
            idle = idle or sorted(self._queues, key=self._num_held)[:1]  # one has to compute
        idle.sort(key=self._num_held)
        orders += [
            self._assign(worker, self._pending.popleft()) for worker in idle[: len(self._pending)]
        ]
        for depth in range(2, max_per_worker + 1):
            if not self._pending:
                break
            for worker, queue in self._queues.items():
                has_room = len(queue.tasks) + queue.num_held < depth and not queue.is_behind
                if has_room and self._pending:
                    orders.append(self._assign(worker, self._pending.popleft()))

    def _num_held(self, worker: int) -> int:
        return self._queues[worker].num_held

    def _take_over(self, orders: list[Order]) -> bool:
        """Take back the tasks that wait behind another one, from the worker with the first such.

        Returns:
            Whether there is a task for an idle worker now.
        """
        waiting = sorted(
            (task.number, worker)
            for worker, queue in self._queues.items()
            for task in itertools.islice(queue.tasks, 1, None)
            if task.is_open
        )
        for worker in dict.fromkeys(worker for _, worker in waiting):
            tasks = self._take_back(worker, len(self._queues[worker].tasks) - 1, orders)
            self._pending.extend(task for task in tasks if task.is_open and not task.num_holders)
            if self._pending:
                return True
        return False

    def _take_back(self, worker: int, max_count: int, orders: list[Order]) -> list[Task]:
        """Take back tasks from the end of a worker's queue, as far as it has not begun them."""
        queue = self._queues[worker]
        count = queue.take_back(max_count) if max_count else 0
        tasks = [queue.tasks.pop() for _ in range(count)][::-1]
        for task in tasks:
            task.num_holders -= 1
        orders.extend(Withdrawal(worker, task) for task in tasks)
        return tasks

    def _assign(self, worker: int, task: Task) -> Assignment:
        queue = self._queues[worker]
        if not queue.tasks:
            queue.busy_since = self._clock()
        queue.tasks.append(task)
        task.num_holders += 1
        return Assignment(worker, task)

    def duplicate(self, task: Task) -> list[Assignment]:
        """Assign a task that a worker is late with to another one, too. The first reply counts.

        Returns:
            What to send; nothing if the task is not with exactly one worker, or all others are as
            slow.
        """
        if not task.is_open or task.num_holders != 1:
            return []
        others = [
            (len(queue.tasks), worker)
            for worker, queue in self._queues.items()
            if queue.is_ready and not queue.is_behind and task not in queue.tasks
        ]
        return [self._assign(min(others)[1], task)] if others else []

    def move(self, worker: int, number: int, *, to: int) -> list[Assignment]:
        """Assign a task to a certain worker, after the reply of another one could not be used.

        Args:
            worker: The worker that has replied.
            number: The number of the task.
            to: The worker that gets it.

        Returns:
            What to send; nothing if the task is done, cancelled, or with another worker, too.
        """
        task = self._remove(worker, number)
        return [self._assign(to, task)] if task.is_open and not task.num_holders else []

    def withdraw_all(self) -> list[Order]:
        """Drop all tasks, at the end of a session.

        Returns:
            What to send to the workers. They finish the tasks that they have begun, whose replies
            are ignored.
        """
        self._pending.clear()
        orders: list[Order] = []
        for worker, queue in self._queues.items():
            for task in queue.tasks:
                task.cancel()
            self._take_back(worker, len(queue.tasks), orders)
        return orders

    # Messages of workers

    def report_progress(self, worker: int, position: int, record: int | None) -> None:
        """Note which position, and which record of it, a worker is about to compute."""
        self._queues[worker].progress = position, record

    def complete(self, worker: int, number: int, reply: Reply) -> None:
        """Note the reply to a task of a worker, unless another worker replied before.

        The replies of a worker process arrive in the order of its tasks. Those of other machines
        may not: a large one takes longer to transfer.
        """
        task = self._remove(worker, number)
        if not task.is_done:
            task.reply = reply

    def lose_reply(self, worker: int, number: int) -> None:
        """Note that the reply of a worker to a task was lost. The task is assigned again."""
        task = self._remove(worker, number)
        if task.is_open and not task.num_holders:
            self._pending.appendleft(task)

    def _remove(self, worker: int, number: int) -> Task:
        queue = self._queues[worker]
        task, was_first = queue.remove(number)
        if was_first:
            queue.busy_since, queue.progress, queue.reported_s = self._clock(), None, 0.0
        return task

    # Time

    def seconds_on(self, task: Task) -> float:
        """Return for how many seconds a worker has been computing a task."""
        started = [
            queue.busy_since
            for queue in self._queues.values()
            if queue.is_ready and queue.current is task
        ]
        return self._clock() - min(started) if started else 0.0

    def running(self) -> list[tuple[int, Task, float]]:
        """Return the task that each worker computes, and for how many seconds. For any thread."""
        now = self._clock()
        found: list[tuple[int, Task, float]] = []
        for worker, queue in list(self._queues.items()):
            task = next((task for task in queue.tasks.copy() if not task.is_done), None)
            if queue.is_ready and task is not None:
                found.append((worker, task, max(0.0, now - queue.busy_since)))
        return found

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
        """Seconds until the first worker exceeds a time limit; `None` if no worker has one."""
        now = self._clock()
        remaining_s = math.inf
        for queue in self._queues.values():
            if queue.is_ready and queue.tasks:
                limit_s = min(
                    queue.limit_s(self._block_timeout_s) or math.inf,
                    queue.report_limit_s(self.slow_task_s),
                )
                remaining_s = min(remaining_s, queue.busy_since + limit_s - now)
        return None if remaining_s == math.inf else max(0.0, remaining_s)

    def report_slow(self, worker: int, number: int, elapsed_s: float) -> Task | None:
        """Note that a worker reports a task; return the task, `None` if it is done by now."""
        queue = self._queues[worker]
        if not queue.tasks or queue.tasks[0].number != number:
            return None
        queue.reported_s = max(queue.reported_s, elapsed_s)
        return queue.tasks[0]

    def silent_workers(self) -> list[tuple[int, Task, float]]:
        """Return the workers that should have reported their task, as of `pause_timers`.

        Returns:
            Each worker, its task, and for how many seconds it has been computing that. It is
            returned again after twice that time.
        """
        silent: list[tuple[int, Task, float]] = []
        for worker, queue in self._queues.items():
            elapsed_s = self._paused_at - queue.busy_since
            if (
                queue.is_ready
                and queue.tasks
                and elapsed_s >= queue.report_limit_s(self.slow_task_s)
            ):
                silent.append((worker, queue.tasks[0], elapsed_s))
                queue.reported_s = elapsed_s
        return silent

    def overdue_workers(self) -> list[int]:
        """Return the workers that have exceeded their time limit, as of `pause_timers`."""
        if self._block_timeout_s is None:
            return []
        return [
            worker
            for worker, queue in self._queues.items()
            if (limit_s := queue.limit_s(self._block_timeout_s)) is not None
            and self._paused_at - queue.busy_since > limit_s
        ]
