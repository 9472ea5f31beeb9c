"""Train with batches from each loader, and compare `feed` with a plain `device_put`."""

import importlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _mnist, _tfds_mnist
from benchmarks._check import ContentError, check_workers, order_of, split_batches
from benchmarks._model import Contender, Measurement, Role, Row, Score, Settings, Target, contender
from benchmarks._processes import count_workers

WARM_UP = 64
NUM_STEPS = 600
STEP_SIZE = 0.01

ROUNDS = 15
STEPS_A_ROUND = 300


def measure_training(
    program: Callable[..., Any],
    contender: Contender,
    settings: Settings,
    *,
    awaits_steps: bool = False,
) -> Measurement:
    """Train the perceptron of the JAX documentation for many epochs, and measure some steps.

    Waiting is the time in the loader's `next`. JAX may compute during that time, unless the program
    waits for each step, as one that prints the loss does.
    """
    import jax

    mlp: Any = importlib.import_module("gristmill._demo.mlp")  # the same as in the demo

    @jax.jit
    def update(params: Any, images: Any, labels: Any) -> Any:
        return mlp.update(params, images.reshape(len(images), -1), labels, STEP_SIZE)

    data = _mnist.load(settings.data)
    is_tfds = contender.package == "tensorflow_datasets"
    start = program(settings.data if is_tfds else data, **contender.arguments)
    num_records = _tfds_mnist.NUM_RECORDS if is_tfds else len(data.labels)
    batches: Iterator[Any] = itertools.chain.from_iterable(start() for _ in itertools.count())
    params = mlp.init_params(0)
    kept: list[bytes] = []
    waited = begin = 0.0
    limit, clock = settings.max_seconds, time.perf_counter
    for number in range(WARM_UP + NUM_STEPS):
        asked = clock()
        batch = next(batches)
        waited += clock() - asked
        images, labels = batch  # releases the previous batch
        if not number:
            for size in {len(labels), num_records % len(labels)} - {0}:  # compile before measuring
                shapes = (size, *images.shape[1:]), size
                dummy = np.zeros(shapes[0], images.dtype), np.zeros(shapes[1], labels.dtype)
                jax.block_until_ready(update(params, *dummy))
        params = update(params, images, labels)
        if awaits_steps:
            jax.block_until_ready(params)
        kept.append(np.asarray(labels).astype(np.int64).tobytes())
        if number == WARM_UP // 2:
            check_workers(count_workers(), contender.worker_count)
        if number == WARM_UP - 1:
            jax.block_until_ready(params)
            begin, waited = clock(), 0.0
        elif number >= WARM_UP and clock() - begin > limit:
            break
    jax.block_until_ready(params)
    seconds = clock() - begin
    seen = np.frombuffer(b"".join(kept), np.int64)
    _check_labels(seen, data.labels[:num_records], contender)
    timed = len(seen) - WARM_UP * _mnist.BATCH_SIZE
    return Measurement(
        metrics={"records_per_s": timed / seconds, "waited_percent": 100 * waited / seconds},
        records=timed,
        complete=len(kept) == WARM_UP + NUM_STEPS,
    )


def _check_labels(seen: Any, labels: Any, contender: Contender) -> None:
    """Check that the labels are those of the source in order, repeated."""
    expected = np.resize(labels, len(seen))
    if contender.streams > 1:
        total = _mnist.NUM_REPEATS * len(labels)
        order = order_of(
            split_batches(total, batch_size=_mnist.BATCH_SIZE, streams=contender.streams)
        )
        expected = labels[order[: len(seen)] % len(labels)]
    if not np.array_equal(seen, expected):
        raise ContentError("The labels are not those of the source in its order.")


def measure_overhead(
    program: Callable[..., Any], contender: Contender, settings: Settings
) -> Measurement:
    """Measure the same loop over the same loader, alternately with `feed` and `device_put`."""
    data: Path = settings.data
    steps: dict[str, Callable[[], Any]] = program(_mnist.load(data))
    for step in steps.values():
        _time_steps(step)
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(ROUNDS):
        for name in list(steps)[:: 1 if number % 2 else -1]:
            spent[name].append(_time_steps(steps[name]))
    differences = [fed - bare for fed, bare in zip(spent["feed"], spent["bare"], strict=True)]
    return Measurement(
        metrics={
            "overhead_us": statistics.median(differences),
            "feed_us": statistics.median(spent["feed"]),
            "bare_us": statistics.median(spent["bare"]),
        },
        records=2 * ROUNDS * STEPS_A_ROUND,
        complete=True,
    )


def _time_steps(step: Callable[[], Any]) -> float:
    """Return the microseconds of a step, including the wait for its result."""
    begin = time.perf_counter()
    for _ in range(STEPS_A_ROUND):
        step()
    return 1e6 * (time.perf_counter() - begin) / STEPS_A_ROUND


def _training(worker_count: int) -> tuple[Contender, ...]:
    torch = contender(
        "PyTorch",
        "Pillow images, as in the tutorial",
        Role.PEER,
        "torch",
        "torch_datasets:mnist",
        items="images",
        jax_docs=True,
        worker_count=worker_count,
    )
    arrays = contender(
        "PyTorch",
        "NumPy arrays",
        Role.PEER,
        "torch",
        "torch_datasets:mnist",
        items="arrays",
        jax_docs=True,
        worker_count=worker_count,
    )
    tfds = contender(
        "TFDS", "as_numpy", Role.PEER, "tensorflow_datasets", "tfds:mnist", autocache=True
    )
    hf = contender("HF", "iter", Role.PEER, "datasets", "huggingface:mnist", shuffle=False)
    grain = (
        contender(
            "Grain", "2 workers", Role.PEER, "grain", "grain_workers:mnist", worker_count=2,
            streams=2,
        )
        if worker_count
        else contender(
            "Grain", "num_threads=0", Role.PEER, "grain", "grain:mnist", shuffle=False,
            num_threads=0,
        )
    )  # fmt: skip
    over_torch = tuple(
        contender(
            "gristmill",
            f"feed{'' if prefetch else '(prefetch=0)'}, PyTorch's Pillow images",
            Role.INFO,
            "torch",
            "gristmill_feeding:torch_items",
            items="images",
            worker_count=worker_count,
            prefetch=prefetch,
        )
        for prefetch in ((2,) if worker_count else (2, 0))
    )
    limit = contender("limit", "slices of arrays", Role.LIMIT, "numpy", "limit:slices")
    ours = contender(
        "gristmill", "feed, arrays", Role.OURS, "gristmill", "gristmill_feeding:columns",
        worker_count=worker_count,
    )  # fmt: skip
    return torch, arrays, tfds, hf, grain, limit, *over_torch, ours


METRICS = {"records_per_s": "images/s", "waited_percent": "waiting, %"}
NOTE = (
    f"Steps {WARM_UP} to {WARM_UP + NUM_STEPS} of the perceptron of the JAX documentation, batch "
    "128, in file order. Waiting is the share of the time in the loader's `next`; JAX may compute "
    "during that time. From the second epoch on, TFDS reads decoded images from memory."
)

TRAINING = tuple(
    Row(
        name="train_mlp_workers" if worker_count else "train_mlp",
        title=f"Training on MNIST, {worker_count or 'no'} workers",
        note=NOTE,
        data="tfds",
        measure=measure_training,
        contenders=_training(worker_count),
        targets=(Target(times=1.0, of="best peer"),),
        metrics=METRICS,
    )
    for worker_count in (0, 2)
)

WAITING = tuple(
    Row(
        name="train_mlp_waiting" + ("_workers" if worker_count else ""),
        title=f"Share of the time that training waits for data, {worker_count or 'no'} workers",
        note="As above, but the program waits for each step, so JAX computes nothing concurrently.",
        data="tfds",
        measure=partial(measure_training, awaits_steps=True),
        contenders=(_training(worker_count)[-1],),
        targets=(Target(times=2),),
        score=Score(metric="waited_percent", unit="%", lower_is_better=True),
        metrics=METRICS,
    )
    for worker_count in (0, 2)
)

OVERHEAD = Row(
    name="feed_overhead",
    title="Additional time of `feed`, compared with a plain `device_put`",
    note=(
        f"The same loader of shuffled MNIST, batch 128, and the same small step, alternately in "
        f"one process, {ROUNDS} times {STEPS_A_ROUND} steps. Median of the differences."
    ),
    data="mnist",
    measure=measure_overhead,
    contenders=(
        contender("gristmill", "feed", Role.OURS, "gristmill", "gristmill_feeding:overhead"),
    ),
    targets=(Target(times=20),),
    score=Score(metric="overhead_us", unit="us", lower_is_better=True),
    metrics={
        "overhead_us": "overhead, us",
        "feed_us": "fed step, us",
        "bare_us": "plain step, us",
    },
)
