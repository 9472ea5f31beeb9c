"""Look-ahead: how many blocks a stream computes ahead of its consumer.

Each decision is a pure function. Two blocks per worker keep the workers busy. While one block is
late, more are computed, so that no worker waits for it; the memory budget bounds them.
"""

from typing import NamedTuple

from gristmill._engine.tuning.policy import TuningPolicy


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


def shrunk_max_blocks(limits: LookaheadLimits) -> int:
    """Return the limit on blocks in flight after many blocks without an idle worker."""
    return max(limits.min_blocks, limits.max_blocks - 1)
