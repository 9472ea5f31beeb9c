"""The memory of workers if the parent holds a large source in memory."""

import os
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from benchmarks import _large
from benchmarks._check import ContentError, check_subset, check_workers
from benchmarks._model import Contender, Measurement, Role, Row, Settings, contender
from benchmarks._processes import (
    bare_private_bytes,
    descendants,
    memory_of,
    worker_pids,
)

BATCH_SIZE = 32
NUM_BATCHES = 83
NUM_IMAGES = NUM_BATCHES * BATCH_SIZE  # 400 MB


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Run most of an epoch, and measure the memory of all processes before its end."""
    before = memory_of(os.getpid()).proportional
    images = _large.make_pool(NUM_IMAGES)
    start = program(images, batch_size=BATCH_SIZE, **contender.arguments)
    iterator = iter(start())
    seen: list[int] = []
    for batch in islice(iterator, NUM_BATCHES - 1):  # PyTorch's workers end with the epoch
        seen += _large.numbers(batch).tolist()
    time.sleep(0.5)  # until the workers have filled their buffers

    workers = worker_pids()
    everyone = [memory_of(pid) for pid in (os.getpid(), *descendants(os.getpid()))]
    own = [memory_of(pid).private for pid in workers]
    bare = bare_private_bytes()
    if len(seen) != (NUM_BATCHES - 1) * BATCH_SIZE:
        raise ContentError(
            f"Expected {NUM_BATCHES - 1} batches of {BATCH_SIZE}, got {len(seen)} records."
        )
    expected = Counter((np.arange(NUM_IMAGES) % 256).tolist())
    check_subset(Counter(seen), expected, complete=False)
    check_workers(len(workers), contender.worker_count)
    return Measurement(
        metrics={
            "workers": len(workers),
            "worker_mb": max(own, default=0) / 1e6,
            "beyond_mb": (max(own) - bare) / 1e6 if own else 0,
            "shared_mb": sum(memory.shared for memory in everyone) / 1e6,
            "total_mb": (sum(memory.proportional for memory in everyone) - before) / 1e6,
        },
        records=len(seen),
        complete=True,
    )


def with_workers(
    family: str, how: str, role: Role, package: str, program: str
) -> tuple[Contender, ...]:
    """Return a contender with one worker and one with two."""
    labels = {1: f"1 worker, {how}", 2: f"2 workers, {how}"}
    return tuple(
        contender(family, label, role, package, program, worker_count=count)
        for count, label in labels.items()
    )


OURS = "gristmill_workers:memory"

ROW = Row(
    name="worker_memory",
    title="Memory with a source of 400 MB, batches of 4.8 MB, 1 and 2 workers",
    note=(
        "Own: the private memory of the largest worker, without shared memory. Beyond: the same, "
        "minus that of a Python process that has imported NumPy. Shared: mapped shared memory, for "
        "batches in flight and sources of workers. All: every page of all processes once (PSS), "
        "including the 400 MB of the source, minus the memory of the consumer after its imports."
    ),
    measure=measure,
    contenders=(
        *with_workers("Grain", "list of arrays", Role.PEER, "grain", "grain_workers:memory"),
        *with_workers("PyTorch", "fork", Role.PEER, "torch", "torch_workers:memory"),
        contender("gristmill", "no workers", Role.INFO, "gristmill", OURS, worker_count=0),
        *with_workers("gristmill", "ArraySource", Role.OURS, "gristmill", OURS),
    ),
    score=None,
    metrics={
        "workers": "workers",
        "worker_mb": "own, MB",
        "beyond_mb": "beyond, MB",
        "shared_mb": "shared, MB",
        "total_mb": "all, MB",
    },
)
