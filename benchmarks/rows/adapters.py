"""Datasets of other libraries, read by their own loader and by gristmill."""

import time
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks import _mnist, _tfds_mnist
from benchmarks._check import (
    check_batch_sizes,
    check_images,
    check_in_order,
    check_shuffled,
    check_workers,
)
from benchmarks._clock import time_epoch, time_steady
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender
from benchmarks.rows import mnist
from benchmarks.rows.mnist_workers import WARM_UP


def measure_torch(
    program: Callable[..., Any], contender: Contender, settings: Settings, *, shuffled: bool = False
) -> Measurement:
    """Measure an epoch of flat float images; with workers, the steady state of ten epochs."""
    data = _mnist.load(settings.data)
    if contender.program.startswith("limit_processes:"):
        records_per_s, records = program(data, settings.max_seconds, **contender.arguments)
        return Measurement(metrics={"records_per_s": records_per_s}, records=records, complete=True)
    images = data.images.reshape(len(data.images), -1).astype(np.float32)
    start = program(data, **contender.arguments)
    if contender.worker_count:
        epoch = time_steady(start, itemgetter(1), settings.max_seconds, warm_up=WARM_UP)
        check_workers(epoch.workers, contender.worker_count)
    else:
        epoch = time_epoch(start, itemgetter(1), settings.max_seconds)
    repeats = _mnist.NUM_REPEATS if contender.worker_count else 1
    labels = np.tile(data.labels, repeats)
    check_batch_sizes(epoch, _mnist.BATCH_SIZE, len(labels))
    (check_shuffled if shuffled else check_in_order)(epoch, labels)
    if settings.verify:
        check_images(
            start(),
            images,
            data.labels,
            order=None if shuffled else np.arange(len(labels)),
            num_repeats=repeats,
            max_seconds=settings.max_seconds,
        )
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


def measure_tfds(
    program: Callable[..., Any], contender: Contender, settings: Settings, *, first: bool
) -> Measurement:
    """Measure the first epoch, or a later one."""
    data = _mnist.load(settings.data)
    images = data.images[: _tfds_mnist.NUM_RECORDS, ..., np.newaxis]
    labels = data.labels[: _tfds_mnist.NUM_RECORDS]
    start = program(settings.data, **contender.arguments)
    metrics: dict[str, float] = {}
    if not first:
        begin = time.perf_counter()
        for _ in start():
            pass
        metrics["prepare_s"] = time.perf_counter() - begin
    limit = settings.max_seconds if not first else 60  # long enough to decode all records
    epoch = time_epoch(start, itemgetter(1), limit)
    check_batch_sizes(epoch, _mnist.BATCH_SIZE, len(labels))
    check_in_order(epoch, labels)
    if settings.verify:
        order = np.arange(len(labels))
        check_images(start(), images, labels, order=order, max_seconds=settings.max_seconds)
    metrics["records_per_s"] = epoch.rate
    return Measurement(metrics=metrics, records=epoch.timed, complete=epoch.complete)


def _torch(items: str, what: str, *, worker_count: int) -> Row:
    made = partial(contender, items=items, worker_count=worker_count)
    program = "torch_datasets:mnist"
    peers = (
        made("PyTorch", "JAX docs' collate", Role.PEER, "torch", program, jax_docs=True),
        made("PyTorch", "default collate", Role.PEER, "torch", program),
    )
    ours = made("gristmill", "from_torch", Role.OURS, "gristmill", "gristmill_adapters:torch_mnist")
    loop, processes = "torch_datasets:bare", "limit_processes:torch_items"
    limit = (
        contender("limit", "2 plain processes", Role.LIMIT, "torch", processes, items=items)
        if worker_count
        else contender("limit", "plain loop", Role.LIMIT, "torch", loop, items=items)
    )
    with_workers = f", {worker_count} workers, steady state" if worker_count else ", no workers"
    return Row(
        name=f"torch_{items}" + ("_workers" if worker_count else ""),
        title=f"A PyTorch dataset of {what}, in order, batch 128{with_workers}",
        data="mnist",
        measure=measure_torch,
        contenders=(*peers, limit, ours),
        # Without workers, PyTorch reads and stacks tensors close to the limit.
        targets=(
            Target(times=1.0 if items == "tensors" and not worker_count else 1.5, of="PyTorch"),
        ),
        note="All contenders read the same dataset object, whose items are created in Python.",
    )


_ITEMS = {
    "arrays": "NumPy arrays",
    "tensors": "tensors",
    "images": "Pillow images converted to NumPy arrays",
}

TORCH = (
    *(
        _torch(items, what, worker_count=worker_count)
        for items, what in _ITEMS.items()
        for worker_count in (0, 2)
    ),
    Row(
        name="torch_in_memory",
        title="PyTorch's TensorDataset, shuffled, batch 128, no workers",
        data="mnist",
        measure=partial(measure_torch, shuffled=True),
        contenders=(
            contender(
                "PyTorch",
                "default collate",
                Role.PEER,
                "torch",
                "torch_datasets:in_memory",
                shuffle=True,
            ),
            contender(
                "gristmill",
                "from_torch",
                Role.OURS,
                "gristmill",
                "gristmill_adapters:torch_in_memory",
                shuffle=True,
            ),
        ),
        targets=(Target(times=1.5, of="PyTorch"),),
    ),
)

HUGGING_FACE = Row(
    name="hf_shuffled",
    title="A Hugging Face dataset after its own shuffle, batch 128, no workers",
    data="mnist",
    measure=partial(mnist.measure, ordered=False),
    contenders=(
        contender("HF", "iter, NumPy format", Role.PEER, "datasets", "huggingface:iter_shuffled"),
        contender(
            "gristmill", "from_huggingface", Role.OURS, "gristmill", "gristmill_adapters:hf_mnist"
        ),
    ),
    targets=(Target(times=10, of="HF"),),
    note="The dataset is shuffled before the measurement. Both contenders read the same object.",
)


def _tfds(*, first: bool) -> Row:
    mill, program = "gristmill", "gristmill_adapters:tfds_mnist"
    package, which = "tensorflow_datasets", "the first" if first else "a later"
    return Row(
        name="tfds_first_epoch" if first else "tfds",
        title=f"A TFDS dataset of PNG files, in order, batch 128, {which} epoch",
        data="tfds",
        measure=partial(measure_tfds, first=first),
        contenders=(
            contender("TFDS", "as_numpy", Role.PEER, package, "tfds:mnist", autocache=True),
            contender(
                "TFDS",
                "as_numpy, prefetch AUTOTUNE",
                Role.PEER,
                package,
                "tfds:mnist",
                autocache=True,
                prefetch=None,
            ),
            contender(
                "TFDS",
                "as_numpy, try_autocache=False",
                Role.PEER,
                package,
                "tfds:mnist",
                autocache=False,
            ),
            contender(mill, "from_tfds", Role.OURS, mill, program),
        ),
        targets=(Target(times=3, of="TFDS"),),
        metrics={"records_per_s": "records/s"} | ({} if first else {"prepare_s": "first epoch, s"}),
        note=(
            "TFDS decodes in its own threads, and keeps small datasets in memory after decoding. "
            "So does from_tfds."
        ),
    )


TFDS = _tfds(first=False)
TFDS_FIRST = _tfds(first=True)
