"""Session: the use of a worker pool by one iterator."""

from typing import final

from gristmill._engine.executors.processes.job import Job
from gristmill._engine.executors.processes.pool import WorkerPool
from gristmill._engine.executors.processes.pool_keeper import PoolKeeper
from gristmill._metrics.counters import Counters
from gristmill.options import WorkerOptions


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
        self._has_closed_stream = False
        self._num_disposed_streams = 0

    @property
    def accepts_streams(self) -> bool:
        """Whether another stream can be added: not after the plans were sent to the workers."""
        return self._pool is None and not self._has_closed_stream

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
            self._pool = self._keeper.take(
                self._jobs, num_workers=self.num_workers, options=self.options
            )
            self._pool.begin_session(self._jobs, self.counters)
        return self._pool

    def close_stream(self) -> None:
        """Let no stream be added any more. Any thread may call this."""
        self._has_closed_stream = True
        pool = self._pool
        if pool is not None:
            pool.is_ending = True
            pool.wake()

    def wake(self) -> None:
        """Make the pool's `wait` in another thread return. Any thread may call this."""
        if self._pool is not None:
            self._pool.wake()

    def dispose_stream(self) -> None:
        """Return the pool to the keeper if this was the last stream."""
        self._num_disposed_streams += 1
        pool = self._pool
        if self._num_disposed_streams == len(self._jobs) and pool is not None:
            self._pool = None
            pool.end_session()
            self._keeper.put_back(pool, keep=self.keeps_workers)
