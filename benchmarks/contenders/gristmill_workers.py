"""gristmill with worker processes: the same programs as for Grain, and one over an array."""

from functools import partial

import gristmill
from benchmarks import _large
from benchmarks.contenders import _grain_workers
from benchmarks.contenders._grain_workers import Start

mnist = partial(_grain_workers.mnist, gristmill)
jpeg = partial(_grain_workers.jpeg, gristmill)
large_batches = partial(_grain_workers.large_batches, gristmill)
stragglers = partial(_grain_workers.stragglers, gristmill)
waiting_reads = partial(_grain_workers.waiting_reads, gristmill)


def memory(images: _large.Images, *, batch_size: int, worker_count: int) -> Start:
    """Read the images as an `ArraySource`."""
    source = gristmill.ArraySource(images)
    return _grain_workers.memory(
        gristmill, source, batch_size=batch_size, worker_count=worker_count
    )
