"""Executor that computes ranges in worker processes: for Python code, on several cores.

Each worker gets another range as soon as it is free, so a slow record delays only its own block;
results are collected in order. While the first range is late, the workers compute further ones, as
far as the memory budget allows. A worker that dies is replaced, and its ranges are computed again:
they are pure functions of the plan, so no element is lost, repeated or changed.
"""

import time
from typing import final

from gristmill._engine.access.cut import Cut
from gristmill._engine.blocks.block import Block
from gristmill._engine.blocks.block_result import BlockResult
from gristmill._engine.executors.base import Executor
from gristmill._engine.executors.processes.job import Job
from gristmill._engine.executors.processes.pool import WorkerPool
from gristmill._engine.executors.processes.pool_keeper import PoolKeeper
from gristmill._engine.executors.scheduling.window import TaskWindow
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.counters import Counters
from gristmill.errors import ClosedError
from gristmill.options import ReadOptions, WorkerOptions


@final
class PoolSession:
    """Worker processes for one stream of an iterator, or for several that run side by side.

    It gets a pool from the keeper when the first task is submitted, and returns it when the last
    stream is disposed of. All methods run in the thread that pulls the stream; only `wake` and
    `close_stream` may be called from other threads.
    """

    def __init__(
        self, keeper: PoolKeeper, *, num_workers: int, options: WorkerOptions, counters: Counters
    ) -> None:
        self.num_workers = num_workers
        self.options = options
        self.counters = counters
        self.keeps_workers = True
        """Whether the workers are kept for the next iterator."""
        self._keeper = keeper
        self._jobs: list[Job] = []
        self._pool: WorkerPool | None = None
        self._resting: WorkerPool | None = None
        self._has_closed_stream = False
        self._num_disposed_streams = 0

    @property
    def accepts_streams(self) -> bool:
        """Whether another stream can be added: not after the plans were sent to the workers."""
        is_sent = self._pool is not None or self._resting is not None
        return not is_sent and not self._has_closed_stream

    def add_stream(self, job: Job) -> int:
        """Compute the ranges of another stream too; return the number of its job."""
        assert self.accepts_streams
        self._jobs.append(job)
        return len(self._jobs) - 1

    def num_workers_per_stream(self) -> int:
        """Return how many workers each stream should keep busy."""
        return -(-self.num_workers // len(self._jobs))

    @property
    def pool(self) -> WorkerPool:
        """The pool, with all workers started or starting."""
        if self._pool is None:
            resting, self._resting = self._resting, None
            if resting is not None and self._keeper.take_back(resting):
                resting.resume_session()
                self._pool = resting
                return resting
            self._pool = self._keeper.take(
                self._jobs, num_workers=self.num_workers, options=self.options
            )
            self._pool.begin_session(self._jobs, self.counters)
        return self._pool

    def rest(self, timeout_s: float) -> None:
        """Leave the pool to the keeper until it is needed again. It has no tasks.

        This thread may never come back. So the keeper ends the workers after `timeout_s`.
        """
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.pause_session()
            self._resting = pool
            self._keeper.hold(pool, timeout_s=timeout_s)

    def close_stream(self) -> None:
        """Let no stream be added any more. Any thread may call this."""
        self._has_closed_stream = True
        pool = self._pool
        if pool is not None:
            pool.is_ending = True
            pool.wake()

    def wake(self) -> None:
        """Make the pool's `wait` in another thread return. Any thread may call this."""
        pool = self._pool
        if pool is not None:
            pool.wake()

    def dispose_stream(self) -> None:
        """Return the pool to the keeper if this was the last stream."""
        self._num_disposed_streams += 1
        if self._num_disposed_streams < len(self._jobs):
            return
        pool, self._pool = self._pool, None
        resting, self._resting = self._resting, None
        if resting is not None and self._keeper.take_back(resting):
            pool = resting
        if pool is not None:
            pool.end_session()
            self._keeper.put_back(pool, keep=self.keeps_workers)


@final
class ProcessExecutor(Executor):
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
        self._job = session.add_stream(Job(cut, read, policy))
        self._window = TaskWindow(
            session.num_workers_per_stream,
            max_blocks=policy.blocks_per_worker * session.num_workers,
            buffer_size=buffer_size,
            memory_budget_bytes=session.options.memory_budget_bytes,
            typical_s=policy.process_block_s,
            policy=policy,
        )
        self._is_interrupted = False
        self._is_closed = False
        self._is_disposed = False

    @property
    def _pool(self) -> WorkerPool:
        return self._session.pool

    def start(self) -> None:
        """Start the workers without waiting for them."""
        self._pool.start()

    def wait_until_ready(self, timeout_s: float) -> bool:
        """Wait until all workers have started, or cannot start, and return whether that is so."""
        deadline = time.monotonic() + timeout_s
        while not self._pool.is_ready:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._is_closed:
                return False
            self._pool.wait(left_s)
        return True

    def rest(self, timeout_s: float) -> None:
        """Do without the workers until the next task. They end if it does not come in time."""
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
        return self.policy.process_block_s

    @property
    def has_room(self) -> bool:
        return self._window.has_room

    @property
    def max_positions(self) -> int | None:
        return self._window.max_positions

    def submit(self, positions: range) -> None:
        self._pool.start()
        self._window.append(self._pool.scheduler.submit(positions, job=self._job))
        self._assign()

    def collect(self, *, has_more: bool) -> BlockResult | None:
        head = self._window.tasks[0]
        while not head.is_done:
            if self._is_interrupted or self._is_closed:
                raise ClosedError("The worker processes were stopped.")
            failure = self._pool.take_failure()
            if failure is not None:
                return BlockResult(Block.empty(), failure)
            timeout_s = self._late_timeout_s() if has_more else None
            if timeout_s == 0.0 and self._window.extend():
                return None
            self._pool.wait(timeout_s or None)
            self._assign()
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
        self._pool.assign(max_per_worker=self._window.max_per_worker)
        if self._window.has_large_blocks:
            self._pool.release_slots(self.policy.large_block_bytes)

    def _late_timeout_s(self) -> float | None:
        """Return how long to wait for the first task while a worker is idle, or `None`."""
        scheduler = self._pool.scheduler
        if scheduler.has_pending or not scheduler.has_idle_worker:
            return None
        return self._window.late_timeout_s(scheduler.seconds_on(self._window.tasks[0]))

    def _update_counters(self) -> None:
        tasks, counters = self._window.tasks, self._session.counters
        counters.blocks_ready = sum(task.is_done for task in tasks)
        counters.blocks_under_way = len(tasks) - counters.blocks_ready
        counters.shared_bytes = self._pool.shared_bytes
        counters.num_workers = self._pool.num_workers
