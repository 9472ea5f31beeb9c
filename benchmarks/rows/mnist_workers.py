"""MNIST with workers, which must not make this small amount of work slower."""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks import _mnist
from benchmarks._check import (
    check_batch_sizes,
    check_images,
    check_in_order,
    check_shuffled,
    check_workers,
    order_of,
    split_batches,
)
from benchmarks._clock import time_steady
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender

WARM_UP = 64  # batches of 25 kB: more than buffers hold


def measure(
    program: Callable[..., Any], contender: Contender, settings: Settings, *, ordered: bool
) -> Measurement:
    """Measure the steady state of an epoch of (images, labels), and check them."""
    data = _mnist.load(settings.data)
    start = program(data, **contender.arguments)
    limit = settings.max_seconds
    epoch = time_steady(start, itemgetter(1), limit, warm_up=WARM_UP)

    size, streams = _mnist.BATCH_SIZE, contender.streams
    count = _mnist.NUM_REPEATS * len(data.labels)
    check_batch_sizes(epoch, size, count, streams=streams)
    order = order_of(split_batches(count, batch_size=size, streams=streams))
    if ordered:
        check_in_order(epoch, data.labels[order % len(data.labels)])
    else:
        check_shuffled(epoch, np.tile(data.labels, _mnist.NUM_REPEATS))
    if settings.verify:
        check_images(
            start(),
            data.images,
            data.labels,
            order=order if ordered else None,
            num_repeats=_mnist.NUM_REPEATS,
            max_seconds=limit,
        )
    check_workers(epoch.workers, contender.worker_count)
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


def with_workers(*, shuffle: bool) -> tuple[Contender, ...]:
    """Return the contenders with two workers, and gristmill without workers."""
    base, peer, ours = Role.BASE, Role.PEER, Role.OURS
    grain, torch, mill = "grain_workers:mnist", "torch_workers:mnist", "gristmill_workers:mnist"
    made = partial(contender, shuffle=shuffle)
    return (
        made("Grain", "2 workers", peer, "grain", grain, worker_count=2, streams=2),
        made("PyTorch", "2 workers, default collate", peer, "torch", torch, worker_count=2),
        made(
            "PyTorch",
            "2 workers, JAX docs' collate",
            peer,
            "torch",
            torch,
            worker_count=2,
            jax_docs=True,
        ),
        made("gristmill", "no workers", base, "gristmill", mill, worker_count=0),
        made("gristmill", "2 workers", ours, "gristmill", mill, worker_count=2),
    )


NOTE = f"The data is repeated ten times. Measured from the arrival of batch {WARM_UP}."

IN_ORDER = Row(
    name="mnist_in_order_workers",
    title="MNIST, per-record Python source, in order, batch 128, 2 workers, steady state",
    note=NOTE,
    data="mnist",
    measure=partial(measure, ordered=True),
    contenders=with_workers(shuffle=False),
    targets=(Target(times=1.0, of="base"),),
)

SHUFFLED = Row(
    name="mnist_shuffled_workers",
    title="MNIST, per-record Python source, shuffled, batch 128, 2 workers, steady state",
    note=NOTE,
    data="mnist",
    measure=partial(measure, ordered=False),
    contenders=with_workers(shuffle=True),
    targets=(Target(times=1.0, of="base"),),
)

GIL_BOUND = Row(
    name="gil_bound",
    title="MNIST, per-record Python source, in order, batch 128, no workers: threads cost nothing",
    note=NOTE,
    data="mnist",
    measure=partial(measure, ordered=True),
    contenders=(
        contender(
            "gristmill",
            "num_threads=0",
            Role.BASE,
            "gristmill",
            "gristmill_workers:mnist",
            worker_count=0,
            num_threads=0,
        ),
        contender(
            "gristmill",
            "num_threads=16, the default",
            Role.OURS,
            "gristmill",
            "gristmill_workers:mnist",
            worker_count=0,
            num_threads=16,
        ),
    ),
    targets=(Target(times=0.95, of="base"),),
)
