"""What it costs to be watched: the same epochs with and without a monitor that is read."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._check import check_batch_sizes, check_in_order
from benchmarks._clock import time_epoch
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender
from benchmarks.rows.integers import BATCH_SIZE

NUM_RECORDS = 6_000_000
"""An epoch takes some seconds, so that the monitor is read as often as in a long run."""


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure an epoch, and compare every integer."""
    start = program(NUM_RECORDS, **contender.arguments)
    epoch = time_epoch(start, lambda batch: batch, settings.max_seconds)
    if epoch.complete:
        check_batch_sizes(epoch, BATCH_SIZE, NUM_RECORDS)
        check_in_order(epoch, np.arange(1, NUM_RECORDS + 1))
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


ROW = Row(
    name="monitoring",
    title="6M integers, +1, batch 1000, watched by `gristmill top`",
    measure=measure,
    contenders=(
        contender("gristmill", "not watched", Role.BASE, "gristmill", "gristmill:integers"),
        contender("gristmill", "watched", Role.OURS, "gristmill", "gristmill:watched_integers"),
    ),
    targets=(Target(times=0.99, of="base"),),
    note="The monitor is read once a second by a thread of the same process, which costs more than "
    "reading it from another one.",
)
