"""Choose workers and buffers by measuring a few elements."""

import itertools
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from gristmill._check import as_int
from gristmill._tree import flatten
from gristmill.dataset._dataset import Dataset
from gristmill.dataset._iter import IterDataset
from gristmill.options import MultiprocessingOptions, ReadOptions

MOST_READ_AHEAD = 1000
"""How many elements are read ahead where they are small."""

WORTH_A_WORKER_S = 1e-4
"""Sending an element to this process takes about a tenth of this: workers pay from here on."""

_MB = 2**20


@final
@dataclass(slots=True)
class PerformanceConfig:
    """What to pass to `mp_prefetch` and to `to_iter_dataset`."""

    multiprocessing_options: MultiprocessingOptions | None = None
    read_options: ReadOptions | None = None


def pick_performance_config(
    ds: IterDataset[Any],
    *,
    ram_budget_mb: int | None,
    max_workers: int | None,
    max_buffer_size: int | None,
    samples_to_check: int = 5,
) -> PerformanceConfig:
    """Choose workers and buffers that fit into a budget of memory, by making a few elements.

    There are no more workers than cores, and none where an element takes less time to make than it
    takes to send it.

    >>> from gristmill.dataset import MapDataset
    >>> ds = MapDataset.range(100).to_iter_dataset()
    >>> pick_performance_config(ds, ram_budget_mb=64, max_workers=0, max_buffer_size=50)
    PerformanceConfig(multiprocessing_options=MultiprocessingOptions(num_workers=0, \
per_worker_buffer_size=1, enable_profiling=False), \
read_options=ReadOptions(num_threads=16, prefetch_buffer_size=50))
    """
    count = as_int("samples_to_check", samples_to_check, minimum=1)
    budget = None if ram_budget_mb is None else as_int("ram_budget_mb", ram_budget_mb) * _MB
    cores = os.cpu_count() or 1
    most_workers = cores if max_workers is None else min(as_int("max_workers", max_workers), cores)
    most_ahead = (
        MOST_READ_AHEAD if max_buffer_size is None else as_int("max_buffer_size", max_buffer_size)
    )
    num_bytes, seconds = _measure(ds, count)
    num_workers = 0 if seconds < WORTH_A_WORKER_S else _within(budget, num_bytes, most_workers)
    sources = _read_from(ds)
    read_bytes = sum(_measure(source, count)[0] for source in sources)
    return PerformanceConfig(
        MultiprocessingOptions(num_workers=num_workers),
        ReadOptions(prefetch_buffer_size=_within(budget, read_bytes, most_ahead)),
    )


def _within(budget: int | None, num_bytes: float, most: int) -> int:
    return most if budget is None or not num_bytes else min(most, int(budget / num_bytes))


def _measure(dataset: Iterable[Any], count: int) -> tuple[float, float]:
    """Give the bytes of an element on average, and the seconds that half of them take at most."""
    elements: list[Any] = []
    seconds: list[float] = []
    iterator: Any = iter(dataset)
    try:
        start = time.perf_counter()
        for element in itertools.islice(iterator, count):
            elements.append(element)
            seconds.append(time.perf_counter() - start)
            start = time.perf_counter()
    finally:
        iterator.close()
    if not elements:
        return 0.0, 0.0
    # The first one opens files and imports modules, and the machine may pause at any other.
    return sum(map(_size, elements)) / len(elements), sorted(seconds)[len(seconds) // 2]


def _size(element: Any) -> int:
    return sum(getattr(leaf, "nbytes", None) or sys.getsizeof(leaf) for leaf in flatten(element)[0])


def _read_from(dataset: Dataset) -> list[Any]:
    """Give the map datasets that a stream reads: each has a buffer of its own."""
    if not isinstance(dataset, IterDataset):
        return [dataset]
    return [source for parent in dataset.parents for source in _read_from(parent)]
