"""Task window: the tasks of one stream between submission and collection, in stream order."""

from collections import deque
from collections.abc import Callable
from typing import final

from gristmill._engine.blocks.block import Block
from gristmill._engine.blocks.block_result import BlockResult
from gristmill._engine.executors.scheduling.lookahead import (
    LookaheadLimits,
    has_room,
    late_timeout_s,
    max_block_positions,
    max_blocks_per_worker,
    shrunk_max_blocks,
)
from gristmill._engine.executors.scheduling.task import Task
from gristmill._engine.tuning.measure import computed_stats
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill.errors import PlanError


@final
class TaskWindow:
    """Keeps tasks in order and decides how many more a stream may submit.

    It knows nothing of how tasks are computed, so that all executors with workers can use it.

    Args:
        num_workers: Returns how many workers the stream should keep busy; it may change.
        max_blocks: Limit on the blocks in flight to begin with.
        buffer_size: Elements to buffer for each worker.
        memory_budget_bytes: Memory that the blocks may occupy, if limited.
        typical_s: First guess of the seconds that a block takes.
        policy: The tuning policy.
    """

    def __init__(
        self,
        num_workers: Callable[[], int],
        *,
        max_blocks: int,
        buffer_size: int,
        memory_budget_bytes: int | None,
        typical_s: float,
        policy: TuningPolicy,
    ) -> None:
        self._num_workers = num_workers
        self._max_blocks = max_blocks
        self._buffer_size = buffer_size
        self._budget = memory_budget_bytes
        self._typical_s = typical_s
        self._policy = policy
        self.max_per_worker = policy.blocks_per_worker
        """Tasks that one worker may have at a time."""
        self._tasks: deque[Task] = deque()
        self._bytes_per_position = 0.0
        self._num_blocks_since_late = 0
        self._block_bytes = 0

    @property
    def tasks(self) -> deque[Task]:
        """The tasks, the first to collect at the left."""
        return self._tasks

    @property
    def _limits(self) -> LookaheadLimits:
        return LookaheadLimits(
            self._num_workers(),
            buffer_size=self._buffer_size,
            memory_budget_bytes=self._budget,
            max_blocks=self._max_blocks,
            policy=self._policy,
        )

    @property
    def has_room(self) -> bool:
        """Whether to submit one more task."""
        sizes = [len(task.positions) for task in self._tasks]
        num_positions = sum(sizes)
        num_prefetched = 0
        if self.has_large_blocks and sizes:
            num_prefetched = self._policy.worker_prefetch_blocks
            num_positions += num_prefetched * sizes[0]
        return has_room(
            self._limits,
            num_blocks=len(sizes),
            num_positions=num_positions,
            num_bytes=num_positions * self._bytes_per_position,
            num_prefetched=num_prefetched,
        )

    @property
    def has_large_blocks(self) -> bool:
        """Whether memory counts more than speed."""
        return self._block_bytes >= self._policy.large_block_bytes

    @property
    def max_positions(self) -> int | None:
        """Positions that one task may have, if limited."""
        return max_block_positions(self._limits, self._bytes_per_position)

    def append(self, task: Task) -> None:
        """Add a task, which comes after the others in the stream."""
        self._tasks.append(task)
        self.max_per_worker = max_blocks_per_worker(self._limits, len(task.positions))

    def late_timeout_s(self, elapsed_s: float) -> float | None:
        """Return how long to wait for the first task before an idle worker gets another one.

        Args:
            elapsed_s: Seconds for which a worker has been computing the first task.

        Returns:
            Seconds, or `None` if no more tasks may be submitted.
        """
        return late_timeout_s(
            self._limits,
            has_room=self.has_room,
            typical_s=self._typical_s,
            elapsed_s=elapsed_s,
        )

    def extend(self) -> bool:
        """Allow one more task for each worker; return whether the memory budget allows one."""
        if not self.has_room and len(self._tasks) >= self._max_blocks:
            self._max_blocks += self._num_workers()
            self._num_blocks_since_late = 0
        return self.has_room

    def pop(self) -> BlockResult:
        """Remove the first task, which is done, and return its result.

        Returns:
            The result with its `stats`; a `PlanError` if one element takes more memory than the
            budget.
        """
        task = self._tasks.popleft()
        self._num_blocks_since_late += 1
        if self._num_blocks_since_late >= self._policy.shrink_after_blocks:
            self._num_blocks_since_late = 0
            self._max_blocks = shrunk_max_blocks(self._limits)
        result = self._result(task)
        result.stats = stats = computed_stats(
            num_elements=len(result.block),
            num_positions=len(task.positions),
            wall_s=result.seconds,
            has_waited=result.has_waited,
            num_bytes=task.num_bytes,
        )
        self._typical_s += self._policy.typical_block_weight * (stats.wall_s - self._typical_s)
        return result

    def _result(self, task: Task) -> BlockResult:
        self._block_bytes = task.num_bytes
        needed = task.num_bytes / len(task.positions)
        self._bytes_per_position = max(
            needed, self._policy.block_bytes_decay * self._bytes_per_position
        )
        if self._budget is not None and needed > self._budget:
            num_workers = self._num_workers()
            error = PlanError(
                f"`memory_budget_bytes` is {self._budget:,}, but one element takes "
                f"{needed:,.0f}. Set it to at least that; {2 * num_workers} times as much keeps "
                f"{num_workers} workers busy."
            )
            return BlockResult(Block.empty(), error)
        return task.result()
