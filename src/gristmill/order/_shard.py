"""Who gets what when data are dealt to shards."""

import sys

from gristmill.options import ShardOptions

ENDLESS = sys.maxsize
"""The length of a stream that does not end."""


def strided_length(total: int, shard: ShardOptions) -> int:
    """Count the positions s, s + n, s + 2n, ... of a stream of `total` for shard s of n.

    >>> [strided_length(10, ShardOptions(s, 3)) for s in range(3)]
    [4, 3, 3]
    >>> [strided_length(10, ShardOptions(s, 3, drop_remainder=True)) for s in range(3)]
    [3, 3, 3]
    """
    if total == ENDLESS:
        return ENDLESS
    if shard.drop_remainder:
        return total // shard.shard_count
    return len(range(shard.shard_index, total, shard.shard_count))


def contiguous_range(total: int, shard: ShardOptions) -> range:
    """Give the piece of `total` records that a shard owns; the first ones take the remainder.

    >>> [contiguous_range(10, ShardOptions(s, 3)) for s in range(3)]
    [range(0, 4), range(4, 7), range(7, 10)]
    >>> [contiguous_range(10, ShardOptions(s, 3, drop_remainder=True)) for s in range(3)]
    [range(0, 3), range(3, 6), range(6, 9)]
    """
    each, rest = divmod(total, shard.shard_count)
    extra = 0 if shard.drop_remainder else rest
    start = each * shard.shard_index + min(shard.shard_index, extra)
    return range(start, start + each + (shard.shard_index < extra))
