"""Time one epoch, keeping enough of it to check afterwards."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What came out of a timed epoch."""

    seconds: float
    values: NDArray[Any]
    batch_sizes: list[int]
    complete: bool


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
    return Epoch(
        seconds=seconds,
        values=np.frombuffer(b"".join(kept), values.dtype),
        batch_sizes=[len(chunk) // values.dtype.itemsize for chunk in kept],
        complete=complete,
    )
