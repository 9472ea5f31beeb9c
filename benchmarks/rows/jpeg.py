"""Two workers decode, crop and flip JPEG files, which takes enough time to need workers."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from benchmarks import _jpeg
from benchmarks._check import (
    check_batch_sizes,
    check_in_order,
    check_workers,
    order_of,
    split_batches,
)
from benchmarks._clock import time_steady
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender

WARM_UP = 8  # batches
OTHER_DECODERS = ("tf.data",)


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure the steady state of an epoch of (images, labels, crops), and check them."""
    from benchmarks import _pillow

    source = _jpeg.load(settings.data)
    if contender.role is Role.LIMIT:
        records_per_s, records = program(source, settings.max_seconds)
        metrics = {"records_per_s": records_per_s}
        return Measurement(metrics=metrics, records=records, complete=True)
    start = program(source, **contender.arguments)
    epoch = time_steady(start, itemgetter(1), settings.max_seconds, warm_up=WARM_UP)

    size, streams = _jpeg.BATCH_SIZE, contender.streams
    check_batch_sizes(epoch, size, len(source), streams=streams)
    check_in_order(epoch, order_of(split_batches(len(source), batch_size=size, streams=streams)))
    if settings.verify:
        _pillow.check_crops(
            start(),
            source,
            max_seconds=settings.max_seconds,
            same_decoder=contender.family not in OTHER_DECODERS,
        )
    check_workers(epoch.workers, contender.worker_count)
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


PEER, TUNED = Role.PEER, Role.TUNED
TORCH, GRAIN, OURS = "torch_workers:jpeg", "grain_workers:jpeg", "gristmill_workers:jpeg"

ROW = Row(
    name="jpeg",
    title="JPEG decode, crop, flip, batch 32, 2 workers, steady state",
    note=(
        f"Measured from the arrival of batch {WARM_UP}; the row `first_batch` measures the start. "
        "The limit is two plain processes that send no results."
    ),
    data="jpeg",
    measure=measure,
    contenders=(
        contender("Grain", "no workers", PEER, "grain", GRAIN, worker_count=0),
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
            TUNED,
            "torch",
            TORCH,
            worker_count=2,
            tuned=True,
        ),
        contender("tf.data", "parallel map, AUTOTUNE", PEER, "tensorflow", "tf_data_jpeg:jpeg"),
        contender("SPDL", "2 threads, Pillow", PEER, "spdl", "spdl:jpeg"),
        contender("limit", "2 plain processes", Role.LIMIT, "PIL", "limit_processes:jpeg"),
        contender("gristmill", "no workers", Role.INFO, "gristmill", OURS, worker_count=0),
        contender("gristmill", "2 workers", Role.OURS, "gristmill", OURS, worker_count=2),
    ),
    targets=(Target(times=1.15, of="PyTorch"), Target(times=0.9, of="limit")),
)

DECODERS = Row(
    name="jpeg_decoders",
    title="The same crops with the decoders of tf.data and gristmill, 2 CPUs, steady state",
    note=(
        "Other work than in `jpeg`, where all loaders but tf.data decode with Pillow. "
        "`decode_and_crop_jpeg` decodes only the crop, `DecodeImage` the rows down to its end."
    ),
    data="jpeg",
    measure=measure,
    contenders=(
        contender("tf.data", "decode_jpeg, then crop", PEER, "tensorflow", "tf_data_jpeg:jpeg"),
        contender(
            "tf.data", "decode_and_crop_jpeg", PEER, "tensorflow", "tf_data_jpeg:jpeg", crops=True
        ),
        contender("gristmill", "2 workers, Pillow", Role.INFO, "gristmill", OURS, worker_count=2),
        contender(
            "gristmill",
            "2 workers, DecodeImage",
            Role.OURS,
            "gristmill",
            OURS + "_decode_image",
            worker_count=2,
        ),
    ),
    targets=(Target(times=1, of="tf.data"),),
)
