"""A source that waits for every record, so that reads must overlap."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks import _mnist
from benchmarks._check import check_batch_sizes, check_images, check_in_order, check_workers
from benchmarks._clock import time_steady
from benchmarks._model import Contender, Measurement, Role, Row, Settings, contender

BATCH_SIZE = 32
WARM_UP = 16  # batches: 512 records, as many as loaders read ahead


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure the steady state of an epoch of (images, labels), and check them."""
    data = _mnist.load(settings.data)
    start = program(data, **contender.arguments)
    limit = settings.max_seconds
    epoch = time_steady(start, itemgetter(1), limit, warm_up=WARM_UP)

    check_batch_sizes(epoch, BATCH_SIZE, len(data.labels))
    check_in_order(epoch, data.labels)
    if settings.verify:
        order = np.arange(len(data.labels))
        check_images(start(), data.images, data.labels, order=order, max_seconds=limit)
    check_workers(epoch.workers, contender.worker_count)
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


TORCH, GRAIN = "torch_workers:waiting_reads", "grain_workers:waiting_reads"
OURS = "gristmill_workers:waiting_reads"

ROW = Row(
    name="waiting_reads",
    title="MNIST from a source that waits 2 ms for every record, in order, batch 32, steady state",
    note=(
        f"Default options: 16 threads and no workers. PyTorch has only workers. Measured from the "
        f"arrival of batch {WARM_UP}. The limit is a plain pool of 16 threads."
    ),
    data="mnist",
    measure=measure,
    contenders=(
        contender("Grain", "16 threads", Role.PEER, "grain", GRAIN, worker_count=0),
        contender("PyTorch", "2 workers", Role.PEER, "torch", TORCH, worker_count=2),
        contender("PyTorch", "16 workers", Role.INFO, "torch", TORCH, worker_count=16),
        contender("limit", "16 plain threads", Role.LIMIT, "numpy", "limit_threads:waiting_reads"),
        contender("gristmill", "16 threads", Role.OURS, "gristmill", OURS, worker_count=0),
    ),
)
