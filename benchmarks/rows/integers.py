"""Integers plus one: the overhead of a loader if there is almost no work."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._check import check_batch_sizes, check_in_order
from benchmarks._clock import time_epoch
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender

NUM_RECORDS = 300_000
BATCH_SIZE = 1000


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure an epoch, and compare every integer, so that no second epoch is needed."""
    start = program(NUM_RECORDS, **contender.arguments)
    epoch = time_epoch(start, lambda batch: batch, settings.max_seconds)
    check_batch_sizes(epoch, BATCH_SIZE, NUM_RECORDS)
    check_in_order(epoch, np.arange(1, NUM_RECORDS + 1))
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


PEER = Role.PEER
TORCH, TF = "torch:integers", "tf_data:integers"

ROW = Row(
    name="integers",
    title="300k integers, +1, batch 1000, no workers",
    measure=measure,
    contenders=(
        contender("Grain", "default threads", PEER, "grain", "grain:integers"),
        contender("Grain", "num_threads=0", PEER, "grain", "grain:integers", num_threads=0),
        contender("PyTorch", "by element", PEER, "torch", TORCH, vectorised=False),
        contender("PyTorch", "by batch, __getitems__", PEER, "torch", TORCH, vectorised=True),
        contender(
            "tf.data", "by element", PEER, "tensorflow", TF, vectorised=False, prefetch=False
        ),
        contender(
            "tf.data",
            "by element, prefetch",
            PEER,
            "tensorflow",
            TF,
            vectorised=False,
            prefetch=True,
        ),
        contender(
            "tf.data", "by batch, prefetch", PEER, "tensorflow", TF, vectorised=True, prefetch=True
        ),
        contender("limit", "plain loop by element", Role.LIMIT, "numpy", "limit:integers"),
        contender("gristmill", "by element", Role.OURS, "gristmill", "gristmill:integers"),
        contender(
            "gristmill", "by batch, map_batch", Role.INFO, "gristmill", "gristmill:integer_columns"
        ),
    ),
    targets=(Target(times=3_000_000),),
)
