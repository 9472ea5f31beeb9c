"""No loader: plain processes that send no results."""

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import _jpeg, _pillow
from benchmarks._mnist import BATCH_SIZE, NUM_REPEATS, Mnist

NUM_PROCESSES = 2


def jpeg(source: _jpeg.JpegSource, max_seconds: float) -> tuple[float, int]:
    """Decode, crop, flip and stack. The last batch of each process is checked."""

    def open_one(number: int) -> Callable[[int], _pillow.Batch]:
        rng = np.random.default_rng(number)

        def make(batch: int) -> _pillow.Batch:
            first = batch * _jpeg.BATCH_SIZE
            records = range(first, first + _jpeg.BATCH_SIZE)
            return _pillow.stack(_pillow.augment(source[index], rng) for index in records)

        return make

    def check(made: _pillow.Batch) -> None:
        _pillow.check_crops([made], source, max_seconds=max_seconds, same_decoder=True)

    num_batches = len(source) // _jpeg.BATCH_SIZE
    return _run(open_one, check, num_batches, _jpeg.BATCH_SIZE, max_seconds)


def torch_items(mnist: Mnist, max_seconds: float, *, items: str) -> tuple[float, int]:
    """Read the items of a PyTorch dataset, and stack each batch."""
    from benchmarks import _torch_mnist
    from benchmarks.contenders.torch_datasets import stacked

    dataset: Any = _torch_mnist.dataset(mnist, items, repeats=NUM_REPEATS)

    def make(batch: int) -> Any:
        records = range(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE)
        return tuple(map(stacked, zip(*map(dataset.__getitem__, records), strict=True)))

    def check(made: Any) -> None:
        assert made[0].shape == (BATCH_SIZE, 784)
        assert made[1].shape == (BATCH_SIZE,)

    num_batches = len(dataset) // BATCH_SIZE
    return _run(lambda _: make, check, num_batches, BATCH_SIZE, max_seconds)


def _run(
    open_one: Callable[[int], Callable[[int], Any]],
    check: Callable[[Any], None],
    num_batches: int,
    batch_size: int,
    max_seconds: float,
) -> tuple[float, int]:
    """Create batches in two processes, and return the sum of their rates and of their records.

    Each process creates every other batch. Its first one is a warm-up.
    """
    fork = multiprocessing.get_context("fork")  # safe, because this process has no threads
    barrier, results = fork.Barrier(NUM_PROCESSES), fork.SimpleQueue()

    def run(number: int) -> None:
        make = open_one(number)
        batches = range(number, num_batches, NUM_PROCESSES)
        made = make(batches[0])
        barrier.wait()
        begin = now = time.perf_counter()
        done = 0
        for batch in batches[1:]:
            made = make(batch)
            done += 1
            now = time.perf_counter()
            if now > begin + max_seconds:
                break
        check(made)
        results.put((done * batch_size, now - begin))

    processes = [fork.Process(target=run, args=(number,)) for number in range(NUM_PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("A process failed.")
    found = [results.get() for _ in processes]
    return sum(records / seconds for records, seconds in found), sum(n for n, _ in found)
