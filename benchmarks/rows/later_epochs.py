"""The first batch of the first epoch and of later ones, with two workers."""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import _mnist
from benchmarks._check import ContentError, check_workers
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
from benchmarks._processes import count_workers
from benchmarks.rows.epochs import torch_variants

NUM_LATER = 4
NUM_MORE = 20  # batches that each epoch continues for before it is abandoned


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure the time from the creation of each iterator to its first batch."""
    data = _mnist.load(settings.data)
    start = program(data, **contender.arguments)
    seconds: list[float] = []
    for _ in range(1 + NUM_LATER):
        begin = time.perf_counter()
        iterator = iter(start())
        _, labels = next(iterator)
        seconds.append(time.perf_counter() - begin)
        if not np.array_equal(labels, data.labels[: len(labels)]):
            raise ContentError("The first batch does not contain the first records.")
        check_workers(count_workers(), contender.worker_count)
        for _ in range(NUM_MORE):
            next(iterator)
        del iterator
    return Measurement(
        metrics={"cold_s": seconds[0], "later_s": statistics.median(seconds[1:])},
        records=len(seconds),
        complete=True,
    )


def _row(name: str, title: str, torch: str, ours: str, **arguments: Any) -> Row:
    made = partial(contender, worker_count=2, **arguments)
    return Row(
        name=name,
        title=title,
        note=(
            "Cold: the first iterator of the program. Later: the median of "
            f"{NUM_LATER} more, each after {NUM_MORE + 1} batches of the one before."
        ),
        data="mnist",
        measure=measure,
        contenders=(
            *torch_variants(torch, **arguments),
            made("gristmill", "2 workers", Role.OURS, "gristmill", ours),
        ),
        targets=(Target(times=0.02),),
        score=Score(metric="later_s", unit="s", lower_is_better=True),
        metrics={"cold_s": "cold, s", "later_s": "later, s"},
    )


ROWS = (
    _row(
        "first_batch_later",
        "The first batch of later epochs with 2 workers: MNIST, per-record source, batch 128",
        "torch_workers:mnist",
        "gristmill_workers:mnist",
        repeated=False,
    ),
    _row(
        "first_batch_heavy_import",
        "The same with a transform whose module takes 2 s to import",
        "torch_workers:heavy_import",
        "gristmill_workers:heavy_import",
    ),
    _row(
        "first_batch_from_torch",
        "The same with a PyTorch dataset, read by from_torch",
        "torch_datasets:mnist",
        "gristmill_adapters:torch_mnist",
        items="arrays",
    ),
)
