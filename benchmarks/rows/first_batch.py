"""The time until the first batch with two workers, which includes their start."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import _mnist
from benchmarks._check import ContentError, check_workers, split_batches
from benchmarks._model import (
    SECONDS,
    Contender,
    Measurement,
    Role,
    Row,
    Settings,
    Target,
    contender,
)
from benchmarks._processes import count_workers


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure the time from the creation of the iterator to its first batch."""
    data = _mnist.load(settings.data)
    start = program(data, repeated=False, **contender.arguments)
    begin = time.perf_counter()
    iterator = iter(start())
    images, labels = next(iterator)
    seconds = time.perf_counter() - begin
    check_workers(count_workers(), contender.worker_count)

    size, streams = _mnist.BATCH_SIZE, contender.streams
    first = np.asarray(split_batches(len(data.labels), batch_size=size, streams=streams)[0])
    same = np.array_equal(images, data.images[first]) and np.array_equal(labels, data.labels[first])
    if not same:
        raise ContentError(f"The first batch does not contain the first {size} records.")
    return Measurement(metrics={"seconds": seconds}, records=len(labels), complete=True)


PEER = Role.PEER
TORCH, GRAIN, OURS = "torch_workers:mnist", "grain_workers:mnist", "gristmill_workers:mnist"

ROW = Row(
    name="first_batch",
    title="The first batch with 2 workers: MNIST, per-record Python source, in order, batch 128",
    note=(
        "From the creation of the iterator to its first batch. PyTorch forks by default, which is "
        "fast, but JAX warns about it. With `spawn`, its workers are new interpreters, as those of "
        "the other loaders are."
    ),
    data="mnist",
    measure=measure,
    contenders=(
        contender("Grain", "2 workers", PEER, "grain", GRAIN, worker_count=2, streams=2),
        contender("PyTorch", "2 workers, fork", PEER, "torch", TORCH, worker_count=2),
        contender(
            "PyTorch",
            "2 workers, spawn",
            Role.INFO,
            "torch",
            TORCH,
            worker_count=2,
            multiprocessing_context="spawn",
        ),
        contender("gristmill", "2 workers", Role.OURS, "gristmill", OURS, worker_count=2),
    ),
    targets=(Target(times=0.3),),
    score=SECONDS,
    metrics={"seconds": "first batch, s"},
)
