"""Worker pool: what an executor and the pool keeper need of workers, wherever they run."""

import os
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence

from gristmill._engine.executors.pools.failures import RestartLimit, fatal_records_error
from gristmill._engine.executors.pools.job import Job
from gristmill._engine.executors.pools.scheduler import Scheduler
from gristmill._engine.executors.pools.task import Assignment, FindHolder, Task
from gristmill._engine.executors.serialization.packed_sources import PackedSource
from gristmill._engine.executors.serialization.plan_payload import PickledPlan
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.counters import Counters, SharedMemory
from gristmill._metrics.stats import WorkerStats
from gristmill._metrics.timeline import Work
from gristmill.options import WorkerOptions


class WorkerPool(ABC):
    """Workers that have loaded the same plans.

    One session at a time uses it. Between sessions it is idle, and its workers keep the plans. All
    methods run in the thread that pulls the stream, which Ctrl-C never interrupts. Only `wake` and
    `close` may be called from other threads. They take no lock.

    Args:
        key: What the keeper finds the pool by.
        options: How workers are started, monitored and replaced.
    """

    def __init__(self, key: Hashable, options: WorkerOptions) -> None:
        self.key = key
        self.options = options
        self.scheduler = Scheduler(block_timeout_s=options.block_timeout_s)
        self.is_ending = False
        """Whether the session is about to return it to the keeper."""
        self._owner = os.getpid()
        self._jobs: Sequence[Job] = ()
        self._counters = Counters()
        self._restarts = RestartLimit(options.max_restarts)
        self._failure: BaseException | None = None
        self._in_use: deque[FindHolder] = deque()
        self._is_idle = False
        self._is_closed = False

    # Sessions

    def begin_session(self, jobs: Sequence[Job], counters: Counters) -> None:
        """Compute tasks of these jobs, which are equal to those that the workers have loaded.

        Args:
            jobs: The jobs, for the errors that name their records.
            counters: Where restarts are counted.
        """
        self._is_idle = False
        self._jobs = jobs
        self.scheduler.slow_task_s = jobs[0].policy.slow_task_s
        self._counters = counters
        self.is_ending = False
        self._restarts = RestartLimit(self.options.max_restarts)

    def pause_session(self) -> None:
        """Start no more workers, until the same session resumes."""
        self._is_idle = True

    def resume_session(self) -> None:
        """Continue the session that has paused, and count its restarts further."""
        self._is_idle = False

    def end_session(self) -> None:
        """Drop the tasks that workers have, and what refers to the session."""
        for order in self.scheduler.withdraw_all():
            self._withdraw(order.worker, order.task)
        self._is_idle = True
        self._jobs, self._counters = (), Counters()

    @property
    def is_usable(self) -> bool:
        """Whether a session may use it: it has not failed, and is not that of a fork's parent."""
        return not self._is_closed and self._failure is None and self._owner == os.getpid()

    @property
    @abstractmethod
    def has_lost_workers(self) -> bool:
        """Whether workers have died while no session used them."""

    @abstractmethod
    def holds(self, plan: PickledPlan) -> bool:
        """Return whether its workers have loaded exactly these plans."""

    @property
    @abstractmethod
    def packed_sources(self) -> Sequence[PackedSource]:
        """What was packed of its plans, and is not packed again for the next session if current.

        It is empty only if nothing was: else the next plan would be pickled without packing lists.
        """

    # Workers

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """The number of workers to keep busy."""

    @property
    def grid(self) -> int | None:
        """Ranges have to end at multiples of this many positions, if they are shared."""
        return None

    @abstractmethod
    def start(self) -> None:
        """Start the workers that are missing, without waiting for them."""

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Whether all workers have started, or cannot start."""

    def wait_until_ready(self, timeout_s: float) -> bool:
        """Wait until all workers have started, or cannot start, and return whether that is so."""
        deadline = time.monotonic() + timeout_s
        while not self.is_ready:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._is_closed:
                return False
            self.wait(left_s)
        return True

    def take_failure(self) -> BaseException | None:
        """Return the reason why no more replies will come, if there is one, and forget it.

        The next `start` tries again. The pool does not keep the exception, because once raised it
        keeps alive the frames that it passed through.
        """
        failure, self._failure = self._failure, None
        return failure

    @property
    @abstractmethod
    def shared_bytes(self) -> int:
        """Bytes of shared memory that hold blocks. Any thread may ask for it."""

    @property
    def memory(self) -> SharedMemory:
        """What counts `shared_bytes`, and exists as long as any of it does."""
        return self

    def trim_memory(self, timeout_s: float) -> None:  # noqa: B027 - only where workers keep slots
        """Return the shared memory that is not in use to the system.

        Args:
            timeout_s: How long to wait for the workers to do so. `wake` ends the wait.
        """

    def note_collected(self, task: Task, policy: TuningPolicy) -> None:
        """Note that a block was collected: if it is large, it counts until its memory is free."""
        self._in_use.extend(task.find_holders(policy.large_block_bytes))

    @property
    def num_in_use(self) -> int:
        """The number of large blocks that were collected and whose memory is in use."""
        self._in_use = deque(find for find in self._in_use if find() is not None)
        return len(self._in_use)

    def count_held(self, tasks: Iterable[Task], policy: TuningPolicy) -> Mapping[int, int]:
        """Count the large blocks of each worker that are in use and count like its tasks.

        A worker reuses its own memory only. As every block that is not yet free counts like a task,
        it never needs more than its share, in whatever order the workers progress. These are the
        blocks that are done, and those that were collected: one that is prefetched, one that the
        caller uses, and one that it still has while it asks for the next. If there are more, the
        caller keeps batches, which may never be free. Then only the last one counts.

        Args:
            tasks: The tasks that are not yet collected.
            policy: The tuning policy.
        """
        num_in_use = self.num_in_use
        num_counted = num_in_use if num_in_use <= policy.worker_prefetch_blocks + 1 else 1
        found = list(self._in_use)[num_in_use - num_counted :]
        for task in tasks:
            found += task.find_holders(policy.large_block_bytes)
        holders = [find_holder() for find_holder in found]
        return Counter([holder for holder in holders if holder is not None])

    def release_slots(self, min_bytes: int) -> None:  # noqa: B027 - as above
        """Let each worker reuse its slots that were freed, if they have at least `min_bytes`."""

    def describe_workers(self) -> tuple[WorkerStats, ...]:
        """Return what each worker has done so far, where that is counted."""
        return ()

    def running_work(self, tasks: Sequence[Task]) -> Sequence[Work]:
        """Return what workers do for some tasks at the moment, where that is known."""
        del tasks
        return ()

    @abstractmethod
    def close(self) -> None:
        """End the workers. Their elements stay valid as long as they are referenced."""

    @abstractmethod
    def dispose(self) -> None:
        """Release all resources. No other thread may be in `wait`."""

    # Messages

    def assign(
        self,
        *,
        max_per_worker: int,
        num_held: Mapping[int, int] | None = None,
        needs_reply: bool = True,
    ) -> None:
        """Assign waiting tasks to the workers, as `Scheduler.assign` describes."""
        for order in self.scheduler.assign(
            max_per_worker=max_per_worker, num_held=num_held, needs_reply=needs_reply
        ):
            if isinstance(order, Assignment):
                self._send(order.worker, order.task)
            else:
                self._withdraw(order.worker, order.task)

    def duplicate(self, task: Task) -> None:
        """Assign a task that a worker is late with to another worker, too."""
        for order in self.scheduler.duplicate(task):
            self._send(order.worker, order.task)

    @abstractmethod
    def _send(self, worker: int, task: Task) -> None:
        """Send a task to a worker."""

    @abstractmethod
    def _withdraw(self, worker: int, task: Task) -> None:
        """Ask a worker to drop a task, unless it has begun it."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for messages until a worker exceeds its time limit, `wake`, or `timeout_s`.

        Returns:
            Whether it was woken.
        """

    @abstractmethod
    def wake(self) -> None:
        """Make `wait` in another thread return. Any thread may call this."""

    @abstractmethod
    def wait_until_woken(self, timeout_s: float) -> None:
        """Wait for `wake`, without handling messages, at most for `timeout_s`."""

    # Deaths

    def _drop_worker(self, worker: int, reason: str, *, is_lost: bool = False) -> None:
        """Let other workers compute the tasks of a dead one.

        Args:
            worker: The number of the worker.
            reason: What it died of.
            is_lost: Whether its machine is gone, so that its task did not kill it.
        """

        def explain(task: Task, record: int | None) -> BaseException:
            cut = self._jobs[task.job].cut
            return fatal_records_error(cut, task.positions, record, tries=task.tries, reason=reason)

        self.scheduler.remove_worker(worker, explain=explain, is_lost=is_lost)
