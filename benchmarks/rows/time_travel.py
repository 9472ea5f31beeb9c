"""What provenance and a ledger cost, and how long it takes to compute any step."""

import statistics
import time
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks import _mnist
from benchmarks._check import ContentError, check_batch_sizes, check_in_order
from benchmarks._clock import time_epoch
from benchmarks._model import Contender, Measurement, Role, Row, Score, Settings, Target, contender
from benchmarks.rows.billion import NUM_RECORDS

REPEATS = 30


def measure_epoch(
    program: Callable[..., Any], contender: Contender, settings: Settings
) -> Measurement:
    """Measure an epoch of (images, labels) and more, and check the labels."""
    data = _mnist.load(settings.data)
    start = program(data, **contender.arguments)
    epoch = time_epoch(start, itemgetter(1), settings.max_seconds)
    check_batch_sizes(epoch, _mnist.BATCH_SIZE, len(data.labels))
    check_in_order(epoch, data.labels)
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


def measure_steps(
    program: Callable[..., Any], contender: Contender, settings: Settings
) -> Measurement:
    """Measure `at(step)` and `steps_of(record)` of a billion shuffled records."""
    loader = program(NUM_RECORDS, batch_size=128)()
    steps = np.random.default_rng(0).integers(0, NUM_RECORDS // 128, size=REPEATS).tolist()
    at_s: list[float] = []
    steps_of_s: list[float] = []
    for step in steps:
        begin = time.perf_counter()
        batch = loader.at(step)
        middle = time.perf_counter()
        found = next(loader.steps_of(int(batch[3])))
        steps_of_s.append(time.perf_counter() - middle)
        at_s.append(middle - begin)
        if found != step:
            raise ContentError(f"Expected record {batch[3]} at step {step}, got {found}.")
    return Measurement(
        metrics={
            "at_ms": statistics.median(at_s) * 1e3,
            "steps_of_ms": statistics.median(steps_of_s) * 1e3,
        },
        records=REPEATS,
        complete=True,
    )


PROVENANCE = Row(
    name="provenance",
    title="MNIST, per-record Python source, batch 128: with the record of each row",
    data="mnist",
    measure=measure_epoch,
    contenders=(
        contender("gristmill", "without", Role.BASE, "gristmill", "gristmill:recorded_mnist"),
        contender(
            "gristmill",
            "provenance=True",
            Role.OURS,
            "gristmill",
            "gristmill:recorded_mnist",
            provenance=True,
        ),
    ),
    targets=(Target(times=0.95, of="base"),),
)

LEDGER = Row(
    name="ledger",
    title="MNIST, per-record Python source, batch 128: with a ledger",
    data="mnist",
    measure=measure_epoch,
    contenders=(
        contender(
            "gristmill",
            "without",
            Role.BASE,
            "gristmill",
            "gristmill:recorded_mnist",
            step_ms=20.0,
        ),
        contender(
            "gristmill",
            "keep_ledger",
            Role.OURS,
            "gristmill",
            "gristmill:recorded_mnist",
            ledger=True,
            step_ms=20.0,
        ),
    ),
    targets=(Target(times=0.99, of="base"),),
    note="Each batch of 100 kB is followed by a training step of 20 ms, in which the caller waits.",
)

STEPS = Row(
    name="at_step",
    title="Any step of a billion shuffled records, batch 128, and the step of a record",
    measure=measure_steps,
    contenders=(contender("gristmill", "default", Role.OURS, "gristmill", "gristmill:billion"),),
    score=Score(metric="at_ms", unit="ms", lower_is_better=True),
    metrics={"at_ms": "at, ms", "steps_of_ms": "steps_of, ms"},
)
