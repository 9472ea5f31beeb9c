"""Shuffle a billion records: time and memory until the first batch."""

import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._check import ContentError
from benchmarks._memory import peak_bytes, reset_peak
from benchmarks._model import Contender, Measurement, Role, Row, Settings

NUM_RECORDS = 10**9
BATCH_SIZE = 128


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure the time to build the loader and to get the first batch, and the peak memory."""
    build = program(NUM_RECORDS, batch_size=BATCH_SIZE, **contender.arguments)
    reset_peak()
    before = peak_bytes()
    begin = time.perf_counter()
    loader = build()
    built = time.perf_counter()
    batch = next(iter(loader))
    first = time.perf_counter()
    after = peak_bytes()

    values = np.asarray(batch, np.int64)
    within = bool(np.all((values >= 0) & (values < NUM_RECORDS)))
    distinct = len(np.unique(values)) == BATCH_SIZE == len(values)
    if not within or not distinct or bool(np.all(np.diff(values) > 0)):
        raise ContentError(f"Expected {BATCH_SIZE} distinct records, shuffled, got {values}.")
    return Measurement(
        metrics={
            "build_ms": (built - begin) * 1e3,
            "first_batch_ms": (first - built) * 1e3,
            "peak_rss_mb": (after - before) / 1e6,
        },
        records=len(values),
        complete=True,
        fingerprint=zlib.crc32(values.tobytes()),
    )


ROW = Row(
    name="billion",
    title="A billion records, shuffled: the first batch of 128",
    measure=measure,
    contenders=(
        Contender(
            family="Grain",
            how="default threads",
            role=Role.PEER,
            package="grain",
            program="grain:billion",
        ),
        Contender(
            family="Grain",
            how="num_threads=0",
            role=Role.PEER,
            package="grain",
            program="grain:billion",
            arguments={"num_threads": 0},
        ),
        Contender(
            family="gristmill",
            how="default",
            role=Role.OURS,
            package="gristmill",
            program="gristmill:billion",
        ),
    ),
    score=None,
    metrics={
        "build_ms": "build, ms",
        "first_batch_ms": "first batch, ms",
        "peak_rss_mb": "peak memory, MB",
    },
)
