"""A Python list of 128 MiB as a source: the first batch, and the memory of all processes."""

import os
import time
from collections.abc import Callable
from typing import Any

from benchmarks import _strings
from benchmarks._check import ContentError, check_workers
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
from benchmarks._processes import count_workers, descendants, memory_of


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure the time to the first batch, and the memory beyond that of the list."""
    records = _strings.make_strings()
    before = memory_of(os.getpid()).proportional
    if contender.role is Role.LIMIT:
        seconds = program(records)
        return Measurement(
            metrics={"seconds": seconds, "beyond_mb": 0.0}, records=len(records), complete=True
        )
    start = program(records, **contender.arguments)
    begin = time.perf_counter()
    iterator = iter(start())
    batch = list(next(iterator))
    seconds = time.perf_counter() - begin
    if batch != records[: len(batch)]:
        raise ContentError("The first batch does not contain the first records.")
    check_workers(count_workers(), contender.worker_count)
    everyone = [memory_of(pid) for pid in (os.getpid(), *descendants(os.getpid()))]
    after = sum(memory.proportional for memory in everyone)
    return Measurement(
        metrics={"seconds": seconds, "beyond_mb": (after - before) / 1e6},
        records=len(batch),
        complete=True,
    )


TORCH = "torch_workers:strings"

ROW = Row(
    name="string_list",
    title="A Python list of 128 MiB of strings: the first batch of 128 with 1 worker",
    note=(
        "The limit is one pickle of the list. Beyond: the memory of all processes, each page once, "
        "minus that of the program with the list before the iterator was created."
    ),
    measure=measure,
    contenders=(
        contender("PyTorch", "1 worker, fork", Role.PEER, "torch", TORCH, worker_count=1),
        contender(
            "PyTorch",
            "1 worker, spawn",
            Role.INFO,
            "torch",
            TORCH,
            worker_count=1,
            multiprocessing_context="spawn",
        ),
        contender("limit", "pickle.dumps", Role.LIMIT, "numpy", "limit_pickle:dumps"),
        contender(
            "gristmill",
            "1 worker",
            Role.OURS,
            "gristmill",
            "gristmill_workers:strings",
            worker_count=1,
        ),
    ),
    targets=(Target(times=0.67, of="limit"),),
    score=SECONDS,
    metrics={"seconds": "first batch, s", "beyond_mb": "beyond, MB"},
)
