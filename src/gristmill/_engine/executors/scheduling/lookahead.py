"""Look-ahead: how many blocks a stream computes ahead of its consumer.

Each decision is a pure function. Two blocks per worker keep the workers busy. While one block is
late, more are computed, so that no worker waits for it; the memory budget bounds them.
"""

from typing import NamedTuple

MAX_BLOCKS_PER_WORKER = 64
"""Limit on the blocks in flight for each worker, however late the first block is."""

LATE_FACTOR = 3.0
"""A block is late when it has taken this many times as long as a typical block."""

DEFAULT_LOOKAHEAD_BYTES = 128 << 20
"""Memory budget for blocks behind a late one, unless the user sets `memory_budget_bytes`."""

CACHE_FRIENDLY_BYTES = 4 << 20
"""Limit on a block of many small batches: memory that does not fit a cache is slower to fill."""

SHRINK_AFTER_BLOCKS = 64
"""After this many blocks without an idle worker the look-ahead shrinks: a smaller set of shared
memory stays warm."""


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

    @property
    def num_wanted_positions(self) -> int:
        """Elements that the user wants to have in flight or buffered."""
        return self.num_workers * (1 + self.buffer_size)

    @property
    def lookahead_bytes(self) -> int:
        """Memory that blocks behind a late one may occupy."""
        return self.memory_budget_bytes or DEFAULT_LOOKAHEAD_BYTES


def has_room(
    limits: LookaheadLimits, *, num_blocks: int, num_positions: int, num_bytes: float
) -> bool:
    """Return whether a stream should submit one more block.

    Args:
        limits: What bounds the look-ahead.
        num_blocks: Blocks that are in flight, or computed and not yet collected.
        num_positions: Positions of these blocks.
        num_bytes: Estimated memory of these blocks.

    >>> limits = LookaheadLimits(2, buffer_size=1, memory_budget_bytes=None, max_blocks=4)
    >>> has_room(limits, num_blocks=3, num_positions=300, num_bytes=1e6)
    True
    >>> has_room(limits, num_blocks=4, num_positions=400, num_bytes=1e6)
    False
    """
    if num_blocks < limits.num_workers:
        return True
    if limits.memory_budget_bytes is not None and num_bytes >= limits.memory_budget_bytes:
        return False
    if num_blocks < 2 * limits.num_workers or num_positions < limits.num_wanted_positions:
        return True
    return num_blocks < limits.max_blocks and num_bytes < limits.lookahead_bytes


def max_block_positions(limits: LookaheadLimits, bytes_per_position: float) -> int | None:
    """Return how many positions a block may have; `None` while elements use no shared memory.

    >>> limits = LookaheadLimits(2, buffer_size=1, memory_budget_bytes=8 << 20, max_blocks=4)
    >>> max_block_positions(limits, bytes_per_position=1 << 20)
    2
    """
    if not bytes_per_position:
        return None
    block_bytes = min(limits.lookahead_bytes / (2 * limits.num_workers), CACHE_FRIENDLY_BYTES)
    return max(1, int(block_bytes / bytes_per_position))


def max_blocks_per_worker(limits: LookaheadLimits, block_positions: int) -> int:
    """Return how many blocks each worker may have: at least one to compute and one to come.

    Small blocks need more, as the consumer assigns none while it is busy elsewhere.
    """
    return max(2, -(-limits.num_wanted_positions // (block_positions * limits.num_workers)))


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
    if limits.max_blocks >= MAX_BLOCKS_PER_WORKER * limits.num_workers:
        return None
    return max(0.0, LATE_FACTOR * typical_s - elapsed_s)


def shrunk_max_blocks(limits: LookaheadLimits) -> int:
    """Return the limit on blocks in flight after `SHRINK_AFTER_BLOCKS` without an idle worker."""
    return max(2 * limits.num_workers, limits.max_blocks - 1)
