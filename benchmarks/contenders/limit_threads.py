"""No loader: a plain pool of threads, for records that must be waited for."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import _waits
from benchmarks._mnist import Mnist
from benchmarks.rows import stragglers as stragglers_row
from benchmarks.rows import waiting_reads as waiting_row

NUM_AHEAD = 512  # records: more than one slow step delays


def in_threads(
    work: Callable[[int], Any], num_records: int, *, batch_size: int, num_threads: int
) -> Iterator[list[Any]]:
    """Yield batches of records. A thread takes the next record when it has finished one."""
    with ThreadPoolExecutor(num_threads) as pool:
        in_flight = deque(pool.submit(work, index) for index in range(NUM_AHEAD))
        batch: list[Any] = []
        for following in range(NUM_AHEAD, num_records + NUM_AHEAD):
            batch.append(in_flight.popleft().result())
            if following < num_records:
                in_flight.append(pool.submit(work, following))
            if len(batch) == batch_size:
                yield batch
                batch = []
        if batch:
            yield batch


def stragglers() -> Callable[[], Iterator[NDArray[Any]]]:
    """Run two threads, which take half of the total waiting time."""
    size = stragglers_row.BATCH_SIZE

    def start() -> Iterator[NDArray[Any]]:
        steps = in_threads(_waits.take_time, _waits.NUM_STEPS, batch_size=size, num_threads=2)
        return map(np.array, steps)

    return start


def waiting_reads(data: Mnist) -> Callable[[], Iterator[Any]]:
    """Read in 16 threads."""
    source = _waits.WaitingSource(data)
    size = waiting_row.BATCH_SIZE

    def start() -> Iterator[Any]:
        read = source.__getitem__
        for batch in in_threads(read, len(source), batch_size=size, num_threads=16):
            images, labels = zip(*batch, strict=True)
            yield np.stack(images), np.array(labels)

    return start
