"""Time one epoch or its steady part, keeping enough of it to check afterwards."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._processes import count_workers


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What came out of a timed epoch."""

    seconds: float
    timed: int
    """How many records came while the clock ran."""
    values: NDArray[Any]
    """One of each record, also of those that came before."""
    batch_sizes: list[int]
    complete: bool
    workers: int | None = None
    """How many worker processes were seen, where anyone looked."""

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.timed / self.seconds


def time_epoch(
    start: Callable[[], Iterable[Any]],
    values_of: Callable[[Any], NDArray[Any]],
    max_seconds: float,
) -> Epoch:
    """Run an epoch, from making the iterator to its end or to `max_seconds`.

    `values_of` picks the small array of a batch that is kept: a copy of its bytes, which costs
    a fraction of a microsecond. Keeping the batches themselves would stop loaders from using
    memory again, and a sum would cost as much as a fast loader's whole batch.
    """
    kept: list[bytes] = []
    complete = True
    values = np.empty(0, np.int64)
    clock = time.perf_counter
    begin = clock()
    deadline = begin + max_seconds
    for batch in start():
        values = values_of(batch)
        kept.append(values.tobytes())
        if clock() > deadline:
            complete = False
            break
    seconds = clock() - begin
    return _epoch(seconds, kept, values.dtype, complete=complete)


def time_steady(
    start: Callable[[], Iterable[Any]],
    values_of: Callable[[Any], NDArray[Any]],
    max_seconds: float,
    *,
    warm_up: int,
) -> Epoch:
    """Run an epoch; the clock runs from the arrival of batch `warm_up` to that of the last.

    Workers are up by then and buffers as full as they will be, so that this is the rate of a
    long run. What starting costs is a row of its own; stopping is not timed. Half-way through the
    warm-up the worker processes are counted.
    """
    kept: list[bytes] = []
    complete = True
    values = np.empty(0, np.int64)
    clock = time.perf_counter
    begin = now = 0.0
    workers: int | None = None
    for batch in start():
        now = clock()
        values = values_of(batch)
        kept.append(values.tobytes())
        if len(kept) <= warm_up:
            begin = now
            if len(kept) == warm_up // 2:
                workers = count_workers()
        elif now > begin + max_seconds:
            complete = False
            break
    if len(kept) <= warm_up:
        raise ValueError(f"The epoch ended after {len(kept)} batches, while warming up.")
    epoch = _epoch(now - begin, kept, values.dtype, complete=complete, warm_up=warm_up)
    return replace(epoch, workers=workers)


def _epoch(
    seconds: float, kept: list[bytes], dtype: np.dtype[Any], *, complete: bool, warm_up: int = 0
) -> Epoch:
    sizes = [len(chunk) // dtype.itemsize for chunk in kept]
    return Epoch(
        seconds=seconds,
        timed=sum(sizes[warm_up:]),
        values=np.frombuffer(b"".join(kept), dtype),
        batch_sizes=sizes,
        complete=complete,
    )
