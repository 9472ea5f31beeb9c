"""Measure the time of an epoch or of its steady state, and keep data to check afterwards."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._processes import count_workers


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """The result of a timed epoch."""

    seconds: float
    timed: int
    """The number of records that arrived in the measured time."""
    values: NDArray[Any]
    """One value of each record, including those before the measured time."""
    batch_sizes: list[int]
    complete: bool
    workers: int | None = None
    """The number of worker processes, if it was counted."""

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.timed / self.seconds


def time_epoch(
    start: Callable[[], Iterable[Any]],
    values_of: Callable[[Any], NDArray[Any]],
    max_seconds: float,
) -> Epoch:
    """Run an epoch: from the creation of the iterator to its end, or for `max_seconds`.

    `values_of` selects a small array of a batch, whose bytes are copied in a fraction of a
    microsecond. Keeping the batches themselves would prevent loaders from reusing memory, and a sum
    over a batch would take as long as a fast loader needs for the batch.
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
    """Run an epoch, and measure from the arrival of batch `warm_up` to that of the last batch.

    By then the workers have started and the buffers are full, so this is the rate of a long run.
    Another row measures the start; the end is not measured. The worker processes are counted in the
    middle of the warm-up.
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
        raise ValueError(
            f"The epoch ended after {len(kept)} batches, before the end of the warm-up."
        )
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
