"""Block size: how many positions to compute together, from what the last block took.

A block should take about a set time. Records that are tuples or dicts also count for the garbage
collector: from about 700 in a block on it runs for each block, and now and then through everything
that the process holds, which takes 0.1 s with PyTorch or JAX imported. For cheap records that is
ten times the rest, so blocks stay below that size.
"""

from typing import NamedTuple

from gristmill._engine.tuning.measure import BlockStats, has_mostly_waited
from gristmill._engine.tuning.policy import TuningPolicy


class BlockSize(NamedTuple):
    """The size of the next block, and what was learned so far. A new one replaces it per block."""

    size: int
    """Positions that the next block should have."""
    target_s: float
    """Seconds that a block should take."""
    limit: int
    """Maximum size, for now."""
    max_limit: int
    """Maximum size in any case."""
    reads_many: bool = False
    """Whether the source reads many records in one call, so that waiting is shared by them."""
    num_until_near: int = 0
    """Blocks without waiting until the source no longer counts as remote; 0 if it does not."""
    num_collected: int = 0
    """Blocks in a row during which the garbage collector ran."""
    num_until_growth: int = 0
    """Blocks without garbage collection until the limit grows again."""


def first_block_size(
    target_s: float,
    policy: TuningPolicy,
    *,
    records_per_position: int = 1,
    num_sources: int = 1,
    reads_many: bool = False,
) -> BlockSize:
    """Return the size of the first block.

    >>> first_block_size(0.0015, TuningPolicy()).size
    1

    Args:
        target_s: Seconds that a block of a single source in memory should take.
        policy: The tuning policy.
        records_per_position: Number of records in each position.
        num_sources: Number of sources that a block is gathered from.
        reads_many: Whether the source reads many records in one call.
    """
    factor = max(
        1,
        num_sources // policy.num_sources_per_block_factor,
        policy.bulk_read_block_factor if reads_many else 1,
    )
    limit = min(
        policy.max_block_positions, max(1, policy.max_block_records // records_per_position)
    )
    return BlockSize(
        size=min(policy.first_block_positions, limit),
        target_s=target_s * min(policy.max_sources_block_factor, factor),
        limit=limit,
        max_limit=limit,
        reads_many=reads_many,
    )


def next_block_size(state: BlockSize, stats: BlockStats, policy: TuningPolicy) -> BlockSize:
    """Return the size of the next block, from what the last one took."""
    num_until_near = _num_until_near(state, stats, policy) if state.reads_many else 0
    target_s = state.target_s * (policy.remote_block_factor if num_until_near else 1)
    size, seconds = state.size, stats.wall_s
    if seconds < target_s / 2 and stats.num_positions == size:
        size *= policy.fast_block_growth if seconds < target_s / 16 else policy.block_growth
    elif seconds > policy.block_shrink_above * target_s and stats.num_positions <= size:
        size = max(1, size // 2)
    limit, num_collected, num_until_growth = state.max_limit, 0, 0
    if stats.num_collections or state.num_collected or state.limit != state.max_limit:
        limit, num_collected, num_until_growth = _limit(state, stats, policy)
    elif min(size, limit) == state.size and num_until_near == state.num_until_near:
        return state  # as usual
    return BlockSize(
        min(size, limit),
        state.target_s,
        limit,
        state.max_limit,
        state.reads_many,
        num_until_near,
        num_collected,
        num_until_growth,
    )


def _num_until_near(state: BlockSize, stats: BlockStats, policy: TuningPolicy) -> int:
    if has_mostly_waited(stats, policy):
        return policy.remote_forget_blocks
    return max(0, state.num_until_near - 1)


def _limit(state: BlockSize, stats: BlockStats, policy: TuningPolicy) -> tuple[int, int, int]:
    """Return the limit, the blocks that ran the garbage collector, and those until it grows."""
    has_collected = stats.num_collections > 0 and stats.num_positions > 1
    num_collected = state.num_collected + 1 if has_collected else 0
    if num_collected >= policy.gc_blocks:
        return max(1, stats.num_positions // 2), 0, policy.gc_retry_blocks
    if state.limit == state.max_limit:
        return state.limit, num_collected, 0
    if state.num_until_growth > 1:
        return state.limit, num_collected, state.num_until_growth - 1
    return min(2 * state.limit, state.max_limit), num_collected, policy.gc_retry_blocks
