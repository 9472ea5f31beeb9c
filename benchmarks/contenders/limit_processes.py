"""No loader: what bare processes reach that hand nothing over."""

import multiprocessing
import time

import numpy as np

from benchmarks import _jpeg, _pillow

NUM_PROCESSES = 2


def jpeg(source: _jpeg.JpegSource, max_seconds: float) -> tuple[float, int]:
    """Decode, crop, flip and stack in two processes at once: their rates together, and records.

    Each takes every other batch and warms up with one. What it made last is checked in the end.
    """
    fork = multiprocessing.get_context("fork")  # a process without threads: nothing can go wrong
    barrier, results = fork.Barrier(NUM_PROCESSES), fork.SimpleQueue()

    def run(number: int) -> None:
        rng = np.random.default_rng(number)
        batches = range(number, len(source) // _jpeg.BATCH_SIZE, NUM_PROCESSES)

        def make(batch: int) -> _pillow.Batch:
            first = batch * _jpeg.BATCH_SIZE
            records = range(first, first + _jpeg.BATCH_SIZE)
            return _pillow.stack(_pillow.augment(source[index], rng) for index in records)

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
        _pillow.check_crops([made], source, max_seconds=max_seconds, same_decoder=True)
        results.put((done * _jpeg.BATCH_SIZE, now - begin))

    processes = [fork.Process(target=run, args=(number,)) for number in range(NUM_PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("A bare process failed.")
    found = [results.get() for _ in processes]
    return sum(records / seconds for records, seconds in found), sum(n for n, _ in found)
