"""The records of each shard: strided or contiguous."""

import sys

from gristmill._data.sampling.shard_options import EMPTY_SHARD_COUNT
from gristmill.options import ShardOptions

ENDLESS = sys.maxsize
"""The length of an endless stream."""


def strided_length(total: int, shard: ShardOptions) -> int:
    """Return the number of positions s, s + n, s + 2n, ... below `total`, for shard s of n.

    >>> [strided_length(10, ShardOptions(s, 3)) for s in range(3)]
    [4, 3, 3]
    >>> [strided_length(10, ShardOptions(s, 3, drop_remainder=True)) for s in range(3)]
    [3, 3, 3]
    """
    if total == ENDLESS:
        return 0 if shard.shard_count == EMPTY_SHARD_COUNT else ENDLESS
    if shard.drop_remainder:
        return total // shard.shard_count
    return len(range(shard.shard_index, total, shard.shard_count))


def contiguous_range(total: int, shard: ShardOptions) -> range:
    """Return the range of `total` records that a shard owns; the first shards own one more.

    >>> [contiguous_range(10, ShardOptions(s, 3)) for s in range(3)]
    [range(0, 4), range(4, 7), range(7, 10)]
    >>> [contiguous_range(10, ShardOptions(s, 3, drop_remainder=True)) for s in range(3)]
    [range(0, 3), range(3, 6), range(6, 9)]
    """
    each, remaining = divmod(total, shard.shard_count)
    extra = 0 if shard.drop_remainder else remaining
    start = each * shard.shard_index + min(shard.shard_index, extra)
    return range(start, start + each + (shard.shard_index < extra))
