"""The transfer of batches of 38 MB from two workers."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks import _large
from benchmarks._check import (
    ContentError,
    check_batch_sizes,
    check_in_order,
    check_workers,
    order_of,
    split_batches,
)
from benchmarks._clock import time_steady
from benchmarks._model import (
    Contender,
    Measurement,
    Role,
    Row,
    Score,
    Settings,
    Target,
    contender,
)

WARM_UP = 8  # batches


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure the steady state of an epoch of images, of which the consumer reads one byte each."""
    pool = _large.make_pool()
    start = program(pool, **contender.arguments)
    epoch = time_steady(start, _large.numbers, settings.max_seconds, warm_up=WARM_UP)

    size, streams = _large.BATCH_SIZE, contender.streams
    batches = split_batches(_large.NUM_RECORDS, batch_size=size, streams=streams)
    check_batch_sizes(epoch, size, _large.NUM_RECORDS, streams=streams)
    check_in_order(epoch, order_of(batches) % len(pool))
    if settings.verify:
        check_bytes(start(), batches, pool, max_seconds=settings.max_seconds)
    check_workers(epoch.workers, contender.worker_count)
    return Measurement(
        metrics={
            "gb_per_s": epoch.rate * _large.RECORD_BYTES / 1e9,
            "records_per_s": epoch.rate,
        },
        records=epoch.timed,
        complete=epoch.complete,
    )


def check_bytes(
    found: Iterable[_large.Images],
    batches: list[range],
    pool: _large.Images,
    *,
    max_seconds: float,
) -> None:
    """Compare every byte of an epoch, until `max_seconds` have passed."""
    deadline = time.perf_counter() + max_seconds
    for images, records in zip(found, batches, strict=False):
        if not np.array_equal(images, pool[np.asarray(records) % len(pool)]):
            raise ContentError(f"The batch of records {records} differs from the source.")
        if time.perf_counter() > deadline:
            break


PEER = Role.PEER
TORCH, GRAIN = "torch_workers:large_batches", "grain_workers:large_batches"
OURS = "gristmill_workers:large_batches"

ROW = Row(
    name="large_batches",
    title="38 MB batches (256 images of 224x224x3 bytes) from 2 workers, steady state",
    note=(
        f"Measured from the arrival of batch {WARM_UP}. The limit is one copy of a batch into "
        "memory that was used before."
    ),
    measure=measure,
    contenders=(
        contender("Grain", "2 workers", PEER, "grain", GRAIN, worker_count=2, streams=2),
        contender("PyTorch", "2 workers, default collate", PEER, "torch", TORCH, worker_count=2),
        contender(
            "PyTorch",
            "2 workers, JAX docs' collate",
            PEER,
            "torch",
            TORCH,
            worker_count=2,
            jax_docs=True,
        ),
        contender(
            "PyTorch",
            "2 workers, persistent, prefetch 4",
            Role.TUNED,
            "torch",
            TORCH,
            worker_count=2,
            tuned=True,
        ),
        contender("limit", "np.copyto", Role.LIMIT, "numpy", "limit:large_batches"),
        contender("gristmill", "no workers", Role.INFO, "gristmill", OURS, worker_count=0),
        contender("gristmill", "2 workers", Role.OURS, "gristmill", OURS, worker_count=2),
    ),
    targets=(Target(times=5, of="PyTorch"),),
    score=Score(metric="gb_per_s", unit="GB/s"),
    metrics={"gb_per_s": "GB/s", "records_per_s": "records/s"},
)
