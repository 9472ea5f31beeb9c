"""Executor that computes ranges in the workers of a pool: processes, or actors on other machines.

Each worker gets another range as soon as it is free, so a slow record delays only its own block;
results are collected in order. While the first range is late, the workers compute further ones, as
far as the memory budget allows. A worker that dies is replaced, and its ranges are computed again:
they are pure functions of the plan, so no element is lost, repeated or changed.
"""

from collections.abc import Sequence
from typing import final

from gristmill._engine.access.cut import Cut
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.executors.base import Executor
from gristmill._engine.executors.pools.base import WorkerPool
from gristmill._engine.executors.pools.job import Job
from gristmill._engine.executors.pools.session import PoolSession
from gristmill._engine.executors.pools.window import TaskWindow
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.timeline import Work
from gristmill.errors import ClosedError
from gristmill.options import ReadOptions


@final
class PooledExecutor(Executor):
    """Computes the ranges of one stream in the workers of a pool, which streams may share."""

    def __init__(
        self,
        cut: Cut,
        session: PoolSession,
        *,
        buffer_size: int,
        read: ReadOptions,
        policy: TuningPolicy,
    ) -> None:
        super().__init__(policy)
        self._session = session
        self._window = TaskWindow(
            session.num_workers_per_stream,
            max_blocks=policy.blocks_per_worker * session.num_workers,
            buffer_size=buffer_size,
            memory_budget_bytes=session.options.memory_budget_bytes,
            typical_s=session.target_block_s(policy),
            policy=policy,
        )
        self._job = session.add_stream(Job(cut, read, policy), self._window.tasks)
        self._is_interrupted = False
        self._is_closed = False
        self._is_disposed = False

    @property
    def _pool(self) -> WorkerPool:
        return self._session.pool

    def pending_work(self) -> Sequence[Work]:
        tasks = self._window.tasks.copy()  # another thread may change them
        running = self._session.running_work(tasks)
        return [*(work for task in tasks for work in task.work), *running]

    def start(self) -> None:
        """Start the workers without waiting for them."""
        self._pool.start()

    def wait_until_ready(self, timeout_s: float) -> bool:
        """Wait until all workers have started, or cannot start, and return whether that is so."""
        return self._pool.wait_until_ready(timeout_s)

    def rest(self, timeout_s: float) -> None:
        """Release the workers until the next task. They end if it does not come in time."""
        self.cancel()
        self._session.rest(timeout_s)

    def discard_workers(self) -> None:
        """Let the workers end with this executor, instead of keeping them for the next one."""
        self._session.keeps_workers = False

    def take_failure(self) -> BaseException | None:
        """Return the reason why the workers cannot start, if there is one, and forget it."""
        return self._pool.take_failure()

    @property
    def target_block_s(self) -> float:
        return self._session.target_block_s(self.policy)

    @property
    def has_room(self) -> bool:
        if self._window.has_large_blocks:
            self._window.num_used = self._pool.num_in_use
        return self._window.has_room

    @property
    def max_positions(self) -> int | None:
        return self._window.max_positions

    @property
    def grid(self) -> int | None:
        return self._pool.grid if self._session.is_shared else None

    def submit(self, positions: range) -> None:
        self._pool.start()
        self._window.append(self._pool.scheduler.submit(positions, job=self._job))
        self._assign()

    def collect(self, *, has_more: bool) -> BlockResult | None:
        head = self._window.tasks[0]
        while not head.is_done:
            if self._is_interrupted or self._is_closed:
                raise ClosedError("The workers were stopped.")
            failure = self._pool.take_failure()
            if failure is not None:
                return BlockResult(Block.empty(), failure)
            timeout_s = self._late_timeout_s() if has_more else None
            if timeout_s == 0.0 and self._window.extend():
                return None
            if self._pool.scheduler.has_pending:  # it may have become the first task only now
                self._assign()
            self._pool.wait(self._duplicate_late(timeout_s or None))
            self._assign()
        self._pool.note_collected(head, self.policy)
        result = self._window.pop()
        self._update_counters()
        return result

    def cancel(self) -> None:
        if self._window.tasks:
            self._pool.scheduler.cancel(self._window.tasks)
            self._window.tasks.clear()
        self._is_interrupted = False

    def interrupt(self) -> None:
        self._is_interrupted = True
        self._session.wake()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._session.close_stream()
        self._session.wake()

    def dispose(self) -> None:
        self.cancel()
        if not self._is_disposed:
            self._is_disposed = True
            self._session.dispose_stream()

    def _assign(self) -> None:
        num_held = self._session.count_held(self.policy)
        if num_held:
            self._pool.release_slots(self.policy.large_block_bytes)
        self._pool.assign(
            max_per_worker=self._window.max_per_worker,
            num_held=num_held,
            needs_reply=not self._window.tasks[0].is_done,
        )

    def _late_timeout_s(self) -> float | None:
        """Return how long to wait for the first task while a worker is idle, or `None`."""
        scheduler = self._pool.scheduler
        if scheduler.has_pending or not scheduler.has_idle_worker:
            return None
        return self._window.late_timeout_s(scheduler.seconds_on(self._window.tasks[0]))

    def _duplicate_late(self, timeout_s: float | None) -> float | None:
        """Assign the first task to another worker, too, if it is late; return how long to wait."""
        late_s = self._session.late_s(self.policy, self._window.typical_s)
        if late_s is None:
            return timeout_s
        head = self._window.tasks[0]
        remaining_s = late_s - self._pool.scheduler.seconds_on(head)
        if remaining_s <= 0:
            self._pool.duplicate(head)
            remaining_s = late_s
        return remaining_s if timeout_s is None else min(timeout_s, remaining_s)

    def _update_counters(self) -> None:
        tasks, counters = self._window.tasks, self._session.counters
        counters.blocks_ready = sum(task.is_done for task in tasks)
        counters.blocks_under_way = len(tasks) - counters.blocks_ready
        pool = self._pool
        counters.watch_memory(pool.memory)
        counters.num_workers = pool.num_workers
        counters.describe_workers = pool.describe_workers
