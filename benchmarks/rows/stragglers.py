"""Some records take fifty times as long as the others, and must not delay them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import _waits
from benchmarks._check import (
    check_batch_sizes,
    check_in_order,
    check_workers,
    order_of,
    split_batches,
)
from benchmarks._clock import time_steady
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender

BATCH_SIZE = 8
WARM_UP = 16  # batches


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure the steady state of an epoch of numbers, and compare every number."""
    start = program(**contender.arguments)
    epoch = time_steady(start, np.asarray, settings.max_seconds, warm_up=WARM_UP)
    batches = split_batches(_waits.NUM_STEPS, batch_size=BATCH_SIZE, streams=contender.streams)
    check_batch_sizes(epoch, BATCH_SIZE, _waits.NUM_STEPS, streams=contender.streams)
    check_in_order(epoch, order_of(batches))
    check_workers(epoch.workers, contender.worker_count)
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


OPTIONS = {"worker_count": 2, "num_threads": 0}  # threads in a worker would overlap its waits
GRAIN, OURS = "grain_workers:stragglers", "gristmill_workers:stragglers"

ROW = Row(
    name="stragglers",
    title="One record in 100 takes 50 ms, the others 1 ms; batch 8, 2 workers, steady state",
    note=(
        f"Records sleep. Measured from the arrival of batch {WARM_UP}. The limit is two plain "
        "threads, each of which takes the next record when it has finished one."
    ),
    measure=measure,
    contenders=(
        contender("Grain", "2 workers", Role.PEER, "grain", GRAIN, streams=2, **OPTIONS),
        contender(
            "PyTorch", "2 workers", Role.PEER, "torch", "torch_workers:stragglers", worker_count=2
        ),
        contender("limit", "2 plain threads", Role.LIMIT, "numpy", "limit_threads:stragglers"),
        contender("gristmill", "2 workers", Role.OURS, "gristmill", OURS, **OPTIONS),
    ),
    targets=(Target(times=0.85, of="limit"),),
)
