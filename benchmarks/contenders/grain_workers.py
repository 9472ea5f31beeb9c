"""Grain's DataLoader with worker processes."""

from functools import partial

import grain
from absl import flags

from benchmarks import _large
from benchmarks.contenders import _grain_workers
from benchmarks.contenders._grain_workers import Start

flags.FLAGS.mark_as_parsed()  # Grain's workers read absl flags, and nothing here parses them

mnist = partial(_grain_workers.mnist, grain)
jpeg = partial(_grain_workers.jpeg, grain)
large_batches = partial(_grain_workers.large_batches, grain)
stragglers = partial(_grain_workers.stragglers, grain)
waiting_reads = partial(_grain_workers.waiting_reads, grain)


def memory(images: _large.Images, *, batch_size: int, worker_count: int) -> Start:
    """Read the images as a list of arrays."""
    source = _large.PoolSource(images, len(images))
    return _grain_workers.memory(grain, source, batch_size=batch_size, worker_count=worker_count)
