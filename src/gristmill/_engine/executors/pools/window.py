"""Task window: the tasks of one stream between submission and collection, in stream order.

How far it extends ahead of the consumer is decided by pure functions. Two blocks per worker keep
the workers busy. While one block is late, more are computed, so that no worker waits for it; the
memory budget bounds them.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, final

from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.executors.pools.task import Task
from gristmill._engine.tuning.measure import computed_stats
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill.errors import PlanError


class LookaheadLimits(NamedTuple):
    """What bounds the look-ahead of a stream. A tuple, as it is created several times a block."""

    num_workers: int
    """Workers that the stream keeps busy."""
    buffer_size: int
    """Elements to buffer for each worker, on top of the one it computes."""
    memory_budget_bytes: int | None
    """Memory that the user grants, if limited."""
    max_blocks: int
    """Blocks that may be in flight; grows while a block is late."""
    policy: TuningPolicy

    @property
    def num_wanted_positions(self) -> int:
        """Elements that the user wants to have in flight or buffered."""
        return self.num_workers * (1 + self.buffer_size)

    @property
    def min_blocks(self) -> int:
        """Blocks that keep the workers busy."""
        return self.policy.blocks_per_worker * self.num_workers

    @property
    def lookahead_bytes(self) -> int:
        """Memory that blocks behind a late one may occupy."""
        return self.memory_budget_bytes or self.policy.lookahead_bytes


def has_room(
    limits: LookaheadLimits,
    *,
    num_blocks: int,
    num_positions: int,
    num_bytes: float,
    num_prefetched: int = 0,
) -> bool:
    """Return whether a stream should submit one more block.

    Args:
        limits: What bounds the look-ahead.
        num_blocks: Blocks that are in flight, or computed and not yet collected.
        num_positions: Positions of these and the prefetched blocks.
        num_bytes: Estimated memory of these and the prefetched blocks.
        num_prefetched: Blocks that were collected, and that the consumer may not have taken yet.

    >>> limits = LookaheadLimits(
    ...     2, buffer_size=1, memory_budget_bytes=None, max_blocks=4, policy=TuningPolicy()
    ... )
    >>> has_room(limits, num_blocks=3, num_positions=300, num_bytes=1e6)
    True
    >>> has_room(limits, num_blocks=4, num_positions=400, num_bytes=1e6)
    False
    """
    if num_blocks < limits.num_workers:
        return True
    if limits.memory_budget_bytes is not None and num_bytes >= limits.memory_budget_bytes:
        return False
    num_blocks += num_prefetched
    if num_blocks < limits.min_blocks or num_positions < limits.num_wanted_positions:
        return True
    return num_blocks < limits.max_blocks and num_bytes < limits.lookahead_bytes


def max_block_positions(limits: LookaheadLimits, bytes_per_position: float) -> int | None:
    """Return how many positions a block may have; `None` while elements use no shared memory.

    >>> limits = LookaheadLimits(
    ...     2, buffer_size=1, memory_budget_bytes=8 << 20, max_blocks=4, policy=TuningPolicy()
    ... )
    >>> max_block_positions(limits, bytes_per_position=1 << 20)
    2
    """
    if not bytes_per_position:
        return None
    block_bytes = min(
        limits.lookahead_bytes / limits.min_blocks, limits.policy.cache_friendly_bytes
    )
    return max(1, int(block_bytes / bytes_per_position))


def max_blocks_per_worker(limits: LookaheadLimits, block_positions: int) -> int:
    """Return how many blocks each worker may have: at least one to compute and one to come.

    Small blocks need more, as the consumer assigns none while it is busy elsewhere.
    """
    wanted = -(-limits.num_wanted_positions // (block_positions * limits.num_workers))
    return max(limits.policy.blocks_per_worker, wanted)


def late_timeout_s(
    limits: LookaheadLimits, *, has_room: bool, typical_s: float, elapsed_s: float
) -> float | None:
    """Return how long an idle worker should wait for the first block before it gets another one.

    A block that takes slightly longer than usual is no reason to compute more blocks: they need
    memory, and fresh pages cost more than the wait.

    Args:
        limits: What bounds the look-ahead.
        has_room: Whether a block may be submitted without extending the look-ahead.
        typical_s: Seconds that a typical block takes.
        elapsed_s: Seconds that the first block has taken so far.

    Returns:
        Seconds, or `None` if the look-ahead cannot grow.
    """
    if has_room:
        return 0.0
    if limits.max_blocks >= limits.policy.max_blocks_per_worker * limits.num_workers:
        return None
    return max(0.0, limits.policy.late_factor * typical_s - elapsed_s)


def duplicate_after_s(typical_s: float, policy: TuningPolicy) -> float:
    """Return after how many seconds a worker on another machine may be gone.

    Args:
        typical_s: Seconds that a typical block takes.
        policy: The tuning policy.

    >>> duplicate_after_s(0.05, TuningPolicy())
    1.0
    """
    return max(policy.ray_late_s, policy.late_factor * typical_s)


def next_typical_s(typical_s: float, block_s: float, policy: TuningPolicy) -> float:
    """Return the seconds that a typical block takes, after one that took `block_s`."""
    return typical_s + policy.typical_block_weight * (block_s - typical_s)


def shrunk_max_blocks(limits: LookaheadLimits) -> int:
    """Return the limit on blocks in flight after many blocks without an idle worker."""
    return max(limits.min_blocks, limits.max_blocks - 1)


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
        self.num_used = policy.worker_prefetch_blocks
        """Blocks that were collected and are in use. Those that the caller keeps may count."""

    @property
    def tasks(self) -> deque[Task]:
        """The tasks, the first to collect at the left."""
        return self._tasks

    @property
    def typical_s(self) -> float:
        """Seconds that a typical block takes."""
        return self._typical_s

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
            num_prefetched = min(self.num_used, self._policy.worker_prefetch_blocks)
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
        self._typical_s = next_typical_s(self._typical_s, stats.wall_s, self._policy)
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
