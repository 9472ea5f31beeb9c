"""MNIST without workers: a per-record Python source, and arrays."""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks import _mnist
from benchmarks._check import check_batch_sizes, check_images, check_in_order, check_shuffled
from benchmarks._clock import time_epoch
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target


def measure(
    program: Callable[..., Any], contender: Contender, settings: Settings, *, ordered: bool
) -> Measurement:
    """Measure an epoch of (images, labels), and check them."""
    data = _mnist.load(settings.data)
    start = program(data, **contender.arguments)
    epoch = time_epoch(start, itemgetter(1), settings.max_seconds)

    check_batch_sizes(epoch, _mnist.BATCH_SIZE, len(data.labels))
    (check_in_order if ordered else check_shuffled)(epoch, data.labels)
    if settings.verify:
        order = np.arange(len(data.labels)) if ordered else None
        limit = settings.max_seconds
        check_images(start(), data.images, data.labels, order=order, max_seconds=limit)
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


def per_record(*, shuffle: bool) -> tuple[Contender, ...]:
    """Return the contenders that read the per-record source."""

    def contender(
        family: str, how: str, role: Role, package: str, program: str, **arguments: Any
    ) -> Contender:
        return Contender(
            family=family,
            how=how,
            role=role,
            package=package,
            program=program,
            arguments={"shuffle": shuffle, **arguments},
        )

    peer, tuned, limit = Role.PEER, Role.TUNED, Role.LIMIT
    torch, tf, bare = "torch:mnist", "tf_data:mnist", "limit:mnist"
    return (
        contender("Grain", "default threads", peer, "grain", "grain:mnist"),
        contender("Grain", "num_threads=0", peer, "grain", "grain:mnist", num_threads=0),
        contender("PyTorch", "JAX docs' collate", peer, "torch", torch, collate="jax docs"),
        contender("PyTorch", "own np.stack collate", tuned, "torch", torch, collate="stack"),
        contender(
            "PyTorch", "own np.concatenate collate", tuned, "torch", torch, collate="concatenate"
        ),
        contender("tf.data", "from_generator", peer, "tensorflow", tf, prefetch=False),
        contender("tf.data", "from_generator, prefetch", peer, "tensorflow", tf, prefetch=True),
        contender("HF", "NumPy format, Arrow table", peer, "datasets", "huggingface:mnist"),
        contender("limit", "fill arrays", limit, "numpy", bare, batcher="fill"),
        contender("limit", "np.stack", limit, "numpy", bare, batcher="stack"),
        contender("limit", "np.concatenate", limit, "numpy", bare, batcher="concatenate"),
        contender("gristmill", "default", Role.OURS, "gristmill", "gristmill:mnist"),
    )


HF_ARROW = Contender(
    family="HF",
    how="Arrow format, views of its table",
    role=Role.INFO,  # it neither calls a Python source nor copies a record
    package="datasets",
    program="huggingface:arrow",
)

IN_ORDER = Row(
    name="mnist_in_order",
    title="MNIST, per-record Python source, in order, batch 128, no workers",
    data="mnist",
    measure=partial(measure, ordered=True),
    contenders=(*per_record(shuffle=False), HF_ARROW),
    targets=(Target(times=1.7, of="HF"), Target(times=0.7, of="limit")),
)

SHUFFLED = Row(
    name="mnist_shuffled",
    title="MNIST, per-record Python source, shuffled, batch 128, no workers",
    data="mnist",
    measure=partial(measure, ordered=False),
    contenders=per_record(shuffle=True),
    targets=(Target(times=1.7, of="PyTorch"),),
)

COLUMNS = Row(
    name="mnist_columns",
    title="MNIST as arrays (columns), shuffled, batch 128, no workers",
    data="mnist",
    measure=partial(measure, ordered=False),
    contenders=(
        Contender(
            family="PyTorch",
            how="TensorDataset, BatchSampler",
            role=Role.PEER,
            package="torch",
            program="torch:tensor_columns",
        ),
        Contender(
            family="PyTorch",
            how="NumPy arrays, __getitems__",
            role=Role.PEER,
            package="torch",
            program="torch:array_columns",
        ),
        Contender(
            family="tf.data",
            how="from_tensor_slices",
            role=Role.PEER,
            package="tensorflow",
            program="tf_data:slices",
        ),
        Contender(
            family="tf.data",
            how="indices, then gather",
            role=Role.PEER,
            package="tensorflow",
            program="tf_data:gather",
        ),
        Contender(
            family="HF",
            how="NumPy format, Arrow table",
            role=Role.PEER,
            package="datasets",
            program="huggingface:mnist",
            arguments={"shuffle": True},
        ),
        Contender(
            family="limit",
            how="images[rows]",
            role=Role.LIMIT,
            package="numpy",
            program="limit:columns",
            arguments={"take": False},
        ),
        Contender(
            family="limit",
            how="images.take(rows)",
            role=Role.LIMIT,
            package="numpy",
            program="limit:columns",
            arguments={"take": True},
        ),
        Contender(
            family="gristmill",
            how="ArraySource",
            role=Role.OURS,
            package="gristmill",
            program="gristmill:columns",
            arguments={"shuffle": True},
        ),
    ),
    targets=(Target(times=0.5, of="limit, images[rows]"), Target(times=0.5, of="limit")),
)
