"""Whole epochs with two workers, from the creation of the iterator: the first and a later one."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks import _jpeg, _large
from benchmarks._check import check_batch_sizes, check_in_order, check_workers
from benchmarks._clock import Epoch, time_epoch
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

LIMIT_FACTOR = 12  # an epoch of 20,000 images takes longer than the epochs of other rows
NUM_LARGE = 3_840


def measure_jpeg(
    program: Callable[..., Any], contender: Contender, settings: Settings, *, num_records: int
) -> Measurement:
    """Measure two epochs of (images, labels, crops), and check them."""
    from benchmarks import _pillow

    source = replace(_jpeg.load(settings.data), num_records=num_records)
    start = program(source, **contender.arguments)
    limit = LIMIT_FACTOR * settings.max_seconds
    epochs = [time_epoch(start, itemgetter(1), limit) for _ in range(2)]
    for epoch in epochs:
        check_batch_sizes(epoch, _jpeg.BATCH_SIZE, num_records)
        check_in_order(epoch, np.arange(num_records))
    if settings.verify:
        same_decoder = contender.family != "tf.data"
        _pillow.check_crops(start(), source, max_seconds=2, same_decoder=same_decoder)
    check_has_workers(start, contender)
    return measurement(epochs)


def measure_large(
    program: Callable[..., Any], contender: Contender, settings: Settings
) -> Measurement:
    """Measure two epochs of large batches, of which the consumer reads one byte per image."""
    pool = _large.make_pool()
    start = program(pool, num_records=NUM_LARGE, **contender.arguments)
    epochs = [time_epoch(start, _large.numbers, settings.max_seconds) for _ in range(2)]
    for epoch in epochs:
        check_batch_sizes(epoch, _large.BATCH_SIZE, NUM_LARGE)
        check_in_order(epoch, (np.arange(NUM_LARGE) % len(pool)).astype(np.uint8))
    check_has_workers(start, contender)
    found = measurement(epochs)
    gb_per_record = _large.RECORD_BYTES / 1e9
    metrics = {
        "gb_per_s": found.metrics["records_per_s"] * gb_per_record,
        "later_gb_per_s": found.metrics["later_per_s"] * gb_per_record,
    }
    return replace(found, metrics=metrics)


def check_has_workers(start: Callable[[], Iterable[Any]], contender: Contender) -> None:
    """Start one more epoch, which is not measured, and count the workers in it."""
    iterator = iter(start())
    next(iterator)
    check_workers(count_workers(), contender.worker_count)


def measurement(epochs: list[Epoch]) -> Measurement:
    """Return the rates of the first epoch and of a later one."""
    first, later = epochs
    return Measurement(
        metrics={"records_per_s": first.rate, "later_per_s": later.rate},
        records=first.timed,
        complete=first.complete and later.complete,
    )


def torch_variants(program: str, **arguments: Any) -> tuple[Contender, ...]:
    """Return PyTorch's loader with two workers that are forked, spawned or persistent."""
    made = partial(contender, worker_count=2, **arguments)
    return (
        made("PyTorch", "2 workers, fork", Role.PEER, "torch", program),
        made(
            "PyTorch",
            "2 workers, spawn",
            Role.INFO,
            "torch",
            program,
            multiprocessing_context="spawn",
        ),
        made(
            "PyTorch",
            "2 workers, persistent",
            Role.PEER,
            "torch",
            program,
            persistent_workers=True,
        ),
    )


NOTE = "From the creation of the iterator to the last batch. A later epoch uses the same loader."


def _jpeg_row(num_records: int) -> Row:
    mill = "gristmill_workers:"
    return Row(
        name=f"jpeg_epoch_{num_records}",
        title=f"JPEG decode, crop, flip, batch 32, 2 workers: whole epochs of {num_records:,}",
        note=f"{NOTE} PyTorch decodes with Pillow, and with the package that `DecodeImage` uses.",
        data="jpeg",
        measure=partial(measure_jpeg, num_records=num_records),
        contenders=(
            *torch_variants("torch_workers:jpeg"),
            contender(
                "PyTorch",
                "2 workers, persistent, simplejpeg",
                Role.PEER,
                "torch",
                "torch_workers:jpeg",
                worker_count=2,
                persistent_workers=True,
                simplejpeg=True,
            ),
            contender(
                "tf.data", "parallel map, AUTOTUNE", Role.PEER, "tensorflow", "tf_data_jpeg:jpeg"
            ),
            contender(
                "gristmill",
                "2 workers, Pillow",
                Role.INFO,
                "gristmill",
                mill + "jpeg",
                worker_count=2,
            ),
            contender(
                "gristmill",
                "2 workers, DecodeImage",
                Role.OURS,
                "gristmill",
                mill + "jpeg_decode_image",
                worker_count=2,
            ),
        ),
        targets=(Target(times=1.15, of="PyTorch"),),
        metrics={"records_per_s": "first epoch, /s", "later_per_s": "later, /s"},
    )


JPEG = (_jpeg_row(2_048), _jpeg_row(20_000))

LARGE = Row(
    name="large_batches_epoch",
    title="38 MB batches from 2 workers: whole epochs of 3,840 records",
    note=NOTE,
    measure=measure_large,
    contenders=(
        *torch_variants("torch_workers:large_batches"),
        contender(
            "gristmill",
            "2 workers",
            Role.OURS,
            "gristmill",
            "gristmill_workers:large_batches",
            worker_count=2,
        ),
    ),
    targets=(Target(times=3, of="PyTorch"),),
    score=Score(metric="gb_per_s", unit="GB/s"),
    metrics={"gb_per_s": "first epoch, GB/s", "later_gb_per_s": "later, GB/s"},
)
