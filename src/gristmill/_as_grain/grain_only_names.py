"""Names that programs for Grain use, and that gristmill itself does not need."""

import os

from gristmill._data.sampling.shard_lengths import contiguous_range
from gristmill.options import ShardOptions

GRAIN_VERSION = "0.2.18"
"""The release of Grain whose names gristmill has, for programs that compare versions."""

GRAIN_VERSION_INFO = tuple(int(number) for number in GRAIN_VERSION.split("."))


PROCESS_KILL_TIMEOUT_S = 25
"""How long Grain waits for a worker to end. Workers of gristmill end at once."""


def worker_count(input_worker_count: int | None) -> int:
    """Return a number of worker processes: the given one, or one for each processor.

    Args:
        input_worker_count: The number, or `None`.
    """
    if input_worker_count is not None:
        return int(input_worker_count)
    return os.cpu_count() or 1


def even_split(num_examples: int, options: ShardOptions) -> tuple[int, int]:
    """Return the first record of a shard that is a contiguous range, and the one after its last.

    Args:
        num_examples: The number of records of all shards.
        options: The shard.
    """
    records = contiguous_range(num_examples, options)
    return records.start, records.stop
