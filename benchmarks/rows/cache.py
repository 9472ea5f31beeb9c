"""Decoded JPEG files that a cache keeps: the first epoch, which fills it, and later ones."""

from collections.abc import Callable
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks import _jpeg
from benchmarks._check import ContentError, check_batch_sizes, check_shuffled
from benchmarks._clock import time_epoch
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender

NUM_RECORDS = 2048
"""Crops of 150 kB, so that an epoch is 300 MB, which no cache of a processor holds."""

NUM_CHECKED = 2  # batches whose images are decoded again


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure a shuffled epoch of images and labels."""
    from benchmarks.contenders.gristmill import center_crop

    source = _jpeg.JpegSource(_jpeg.load(settings.data).files, NUM_RECORDS)
    start = program(source, **contender.arguments)
    epoch = time_epoch(start, itemgetter("label"), settings.max_seconds)
    check_batch_sizes(epoch, _jpeg.BATCH_SIZE, NUM_RECORDS)
    check_shuffled(epoch, np.arange(NUM_RECORDS))
    if settings.verify:
        for batch in islice(start(), NUM_CHECKED):
            for image, label in zip(batch["image"], batch["label"].tolist(), strict=True):
                if not np.array_equal(image, center_crop(source[label])["image"]):
                    raise ContentError(f"Image {label} is not that of the source.")
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


IN_MEMORY = "the same images as an ArraySource"

ROW = Row(
    name="cache",
    title="JPEG decode, centre crop, then a cache: shuffled, batch 32, no workers",
    note=(
        f"{NUM_RECORDS:,} images. The first epoch fills an empty folder and may use threads. "
        "The later one is the second of the program, when the files are in the page cache."
    ),
    data="jpeg",
    measure=measure,
    contenders=(
        contender("gristmill", "first epoch", Role.BASE, "gristmill", "gristmill:cached_jpeg"),
        contender(
            "gristmill",
            "later epoch, cache on disk",
            Role.OURS,
            "gristmill",
            "gristmill:cached_jpeg",
            is_filled=True,
        ),
        contender(
            "gristmill",
            "later epoch, cache in memory",
            Role.INFO,
            "gristmill",
            "gristmill:cached_jpeg",
            is_filled=True,
            on_disk=False,
        ),
        contender("gristmill", IN_MEMORY, Role.INFO, "gristmill", "gristmill:jpeg_array"),
    ),
    targets=(
        Target(times=10, of="base"),
        Target(times=0.8, of=f"gristmill, {IN_MEMORY}"),
    ),
)
