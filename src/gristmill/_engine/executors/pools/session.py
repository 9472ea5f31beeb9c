"""Session: the use of a worker pool by one iterator, for one stream or several side by side."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import final

from gristmill._engine.executors.pools.base import WorkerPool
from gristmill._engine.executors.pools.job import Job
from gristmill._engine.executors.pools.keeper import PoolKeeper
from gristmill._engine.executors.pools.task import Task
from gristmill._engine.executors.pools.window import duplicate_after_s
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.counters import Counters
from gristmill._metrics.timeline import Work
from gristmill.options import RayOptions, WorkerOptions


@final
class PoolSession:
    """Workers for one stream of an iterator, or for several that run side by side.

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
        self._tasks: list[Iterable[Task]] = []
        self._pool: WorkerPool | None = None
        self._resting: WorkerPool | None = None
        self._has_closed_stream = False
        self._num_disposed_streams = 0

    @property
    def accepts_streams(self) -> bool:
        """Whether another stream can be added: not after the plans were sent to the workers."""
        is_sent = self._pool is not None or self._resting is not None
        return not is_sent and not self._has_closed_stream

    def add_stream(self, job: Job, tasks: Iterable[Task]) -> int:
        """Compute the ranges of another stream too.

        Args:
            job: The job of its tasks.
            tasks: Its tasks that are not yet collected, at any time.

        Returns:
            The number of the job.
        """
        assert self.accepts_streams
        self._jobs.append(job)
        self._tasks.append(tasks)
        return len(self._jobs) - 1

    def num_workers_per_stream(self) -> int:
        """Return how many workers each stream should keep busy."""
        num_workers = self.num_workers if self._pool is None else self._pool.num_workers
        return -(-num_workers // len(self._jobs))

    def count_held(self, policy: TuningPolicy) -> Mapping[int, int]:
        """Count the large blocks of each worker that count like its tasks, of all streams."""
        return self.pool.count_held(itertools.chain.from_iterable(self._tasks), policy)

    def target_block_s(self, policy: TuningPolicy) -> float:
        """Return the seconds that computing a range should take."""
        return policy.ray_block_s if self._is_remote else policy.process_block_s

    def late_s(self, policy: TuningPolicy, typical_s: float) -> float | None:
        """Return after how many seconds another worker gets a late range, too; `None` for never.

        Workers on this machine that are slow compute; one on another machine may be gone. A shared
        pool takes care of that itself.
        """
        if not self._is_remote or self.is_shared:
            return None
        return duplicate_after_s(typical_s, policy)

    @property
    def is_shared(self) -> bool:
        """Whether other processes use the same workers."""
        return isinstance(self.options, RayOptions) and self.options.shared_pool is not None

    @property
    def _is_remote(self) -> bool:
        return isinstance(self.options, RayOptions)

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

    def running_work(self, tasks: Sequence[Task]) -> Sequence[Work]:
        """Return what workers do for some tasks at the moment, where that is known."""
        return () if self._pool is None else self._pool.running_work(tasks)

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
