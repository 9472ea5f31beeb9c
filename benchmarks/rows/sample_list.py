"""A dataset object with a list of 1.28 million samples: the first batches, and the memory."""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks._check import ContentError, check_workers
from benchmarks._mnist import BATCH_SIZE
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
from benchmarks._processes import count_workers, memory_of, worker_pids
from benchmarks._samples import Samples
from benchmarks.rows.later_epochs import NUM_LATER, NUM_MORE


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure the time from the creation of each iterator to its first batch."""
    source = Samples()
    if contender.role is Role.LIMIT:
        metrics = {"cold_s": program(source.samples), "later_s": 0.0, "worker_mb": 0.0}
        return Measurement(metrics=metrics, records=len(source), complete=True)
    expected = [source[index] for index in range(BATCH_SIZE)]
    start = program(source, **contender.arguments)
    seconds: list[float] = []
    worker_bytes = 0
    for _ in range(1 + NUM_LATER):
        begin = time.perf_counter()
        iterator = iter(start())
        batch = next(iterator)
        seconds.append(time.perf_counter() - begin)
        if not np.array_equal(batch, expected):
            raise ContentError("The first batch does not contain the first records.")
        check_workers(count_workers(), contender.worker_count)
        for _ in range(NUM_MORE):
            next(iterator)
        worker_bytes = max(memory_of(pid).private for pid in worker_pids())
        del iterator
    return Measurement(
        metrics={
            "cold_s": seconds[0],
            "later_s": statistics.median(seconds[1:]),
            "worker_mb": worker_bytes / 1e6,
        },
        records=len(seconds),
        complete=True,
    )


_torch = partial(
    contender, "PyTorch", package="torch", program="torch_workers:samples", worker_count=2
)
_PEERS = (
    _torch(how="2 workers, fork", role=Role.PEER),
    _torch(how="2 workers, spawn", role=Role.INFO, multiprocessing_context="spawn"),
    _torch(how="2 persistent workers", role=Role.PEER, persistent_workers=True),
)
_LIMIT = contender("limit", "pickle.dumps", Role.LIMIT, "numpy", "limit_pickle:dumps")
_OURS = contender(
    "gristmill", "2 workers", Role.OURS, "gristmill", "gristmill_workers:samples", worker_count=2
)
_NOTE = (
    "Cold: the first iterator of the program. Later: the median of "
    f"{NUM_LATER} more, each after {NUM_MORE + 1} batches of the one before. Memory: what the "
    "larger worker does not share with other processes."
)


def _row(name: str, title: str, metric: str, target: Target, peers: tuple[Contender, ...]) -> Row:
    return Row(
        name=name,
        title=title,
        note=_NOTE,
        measure=measure,
        contenders=(*peers, _OURS),
        targets=(target,),
        score=Score(metric=metric, unit="s", lower_is_better=True),
        metrics={"cold_s": "cold, s", "later_s": "later, s", "worker_mb": "a worker, MB"},
    )


ROWS = (
    _row(
        "sample_list",
        "A dataset with a list of 1.28 million (path, label): the first batch with 2 workers",
        "cold_s",
        Target(times=0.67, of="limit"),
        (*_PEERS, _LIMIT),
    ),
    _row(
        "sample_list_later",
        "The same: the first batch of later epochs",
        "later_s",
        Target(times=0.02),
        _PEERS,
    ),
)
