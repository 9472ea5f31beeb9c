"""The fluent API: shuffled integers, and a mix of many sources."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks._check import check_batch_sizes, check_shuffled
from benchmarks._clock import time_epoch
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender

NUM_RECORDS = 300_000
NUM_MIXED = 301_000  # divisible by 2 and by 35
BATCH_SIZE = 1000


def measure(
    program: Callable[..., Any],
    contender: Contender,
    settings: Settings,
    *,
    num_records: int = NUM_RECORDS,
) -> Measurement:
    """Measure an epoch, and compare every integer."""
    start = program(num_records, BATCH_SIZE, **contender.arguments)
    epoch = time_epoch(start, lambda batch: batch, settings.max_seconds)
    check_batch_sizes(epoch, BATCH_SIZE, num_records)
    check_shuffled(epoch, np.arange(1, num_records + 1))
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


def _grain(program: str, **arguments: Any) -> tuple[Contender, ...]:
    how = f"{arguments['num_sources']} sources, " if arguments else ""
    return (
        contender("Grain", f"{how}default threads", Role.PEER, "grain", program, **arguments),
        contender(
            "Grain",
            f"{how}num_threads=0",
            Role.PEER,
            "grain",
            program,
            num_threads=0,
            **arguments,
        ),
    )


SHUFFLED = Row(
    name="dataset_shuffled",
    title="MapDataset.range(300k), shuffled, +1 in Python, batch 1000, no workers",
    measure=measure,
    contenders=(
        *_grain("grain:shuffled_integers"),
        contender("gristmill", "default", Role.OURS, "gristmill", "gristmill:shuffled_integers"),
    ),
    targets=(Target(times=3_000_000),),
)


def _mixing(name: str, title: str, program: str) -> Row:
    return Row(
        name=name,
        title=title,
        measure=partial(measure, num_records=NUM_MIXED),
        contenders=(
            *_grain(f"grain:{program}", num_sources=2),
            *_grain(f"grain:{program}", num_sources=35),
            contender(
                "gristmill",
                "2 sources",
                Role.BASE,
                "gristmill",
                f"gristmill:{program}",
                num_sources=2,
            ),
            contender(
                "gristmill",
                "35 sources",
                Role.OURS,
                "gristmill",
                f"gristmill:{program}",
                num_sources=35,
            ),
        ),
        targets=(Target(times=0.77, of="base"),),
        note="35 sources may take 1.3 times as long as 2.",
    )


MIXED = _mixing(
    "mixing", "MapDataset.mix of 2 and of 35 ranges, +1 in Python, batch 1000", "mixed_integers"
)
MIXED_STREAMS = _mixing("mixing_streams", "IterDataset.mix of the same ranges", "mixed_streams")
