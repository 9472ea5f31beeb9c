"""Choosing the number of workers and the size of buffers by measuring a few elements."""

import itertools
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from gristmill._api.dataset.base import Dataset
from gristmill._api.dataset.iter_dataset import IterDataset
from gristmill._base.checks import as_int
from gristmill._base.trees.tree import flatten
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy
from gristmill.options import MultiprocessingOptions, ReadOptions

MAX_BUFFER_SIZE = 1000
"""The default limit of the number of elements to read ahead, reached if they are small."""

_MB = 2**20


@final
@dataclass(slots=True)
class PerformanceConfig:
    """The options that `pick_performance_config` chose.

    >>> PerformanceConfig(read_options=ReadOptions(num_threads=1)).multiprocessing_options is None
    True

    Args:
        multiprocessing_options: The argument for `IterDataset.mp_prefetch`.
        read_options: The argument for `MapDataset.to_iter_dataset`.
    """

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
    """Choose the number of workers and the buffer size by computing a few elements.

    There are at most as many workers as CPU cores, and none if an element takes less time to
    compute than to send. The choice depends on measured times, so it is not deterministic; it
    never changes the stream.

    >>> from gristmill import MapDataset
    >>> ds = MapDataset.range(100).to_iter_dataset()
    >>> pick_performance_config(ds, ram_budget_mb=64, max_workers=0, max_buffer_size=50)
    PerformanceConfig(multiprocessing_options=MultiprocessingOptions(num_workers=0, \
per_worker_buffer_size=1, enable_profiling=False), \
read_options=ReadOptions(num_threads=16, prefetch_buffer_size=50))

    Args:
        ds: The stream to measure.
        ram_budget_mb: The memory that buffers may use, in MB. `None` means any amount.
        max_workers: The maximum number of workers. `None` means the number of CPU cores.
        max_buffer_size: The maximum number of elements to read ahead. `None` means 1000.
        samples_to_check: The number of elements to compute.

    Returns:
        Options for `mp_prefetch` and `to_iter_dataset`.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If an argument has the wrong type.
    """
    count = as_int("samples_to_check", samples_to_check, minimum=1)
    budget = None if ram_budget_mb is None else as_int("ram_budget_mb", ram_budget_mb) * _MB
    cores = os.cpu_count() or 1
    worker_limit = cores if max_workers is None else min(as_int("max_workers", max_workers), cores)
    buffer_limit = (
        MAX_BUFFER_SIZE if max_buffer_size is None else as_int("max_buffer_size", max_buffer_size)
    )
    num_bytes, seconds = _measure(ds, count)
    num_workers = choose_workers(seconds, num_bytes, budget=budget, limit=worker_limit)
    read_bytes = sum(_measure(source, count)[0] for source in _map_datasets_below(ds))
    return PerformanceConfig(
        MultiprocessingOptions(num_workers=num_workers),
        ReadOptions(prefetch_buffer_size=_within(budget, read_bytes, buffer_limit)),
    )


def choose_workers(
    seconds: float,
    num_bytes: float,
    *,
    budget: int | None,
    limit: int,
    policy: TuningPolicy = DEFAULT_POLICY,
) -> int:
    """Return the number of workers for elements that take `seconds` and `num_bytes`.

    >>> choose_workers(0.01, 1000, budget=None, limit=8)
    8
    """
    return 0 if seconds < policy.min_worker_s else _within(budget, num_bytes, limit)


def _within(budget: int | None, num_bytes: float, limit: int) -> int:
    """Return how many objects of `num_bytes` fit into a budget, but at most `limit`."""
    return limit if budget is None or not num_bytes else min(limit, int(budget / num_bytes))


def _measure(dataset: Iterable[Any], count: int) -> tuple[float, float]:
    """Return the mean size of an element in bytes, and the median time to compute one."""
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
    # The median, because the first element opens files and imports modules, and the operating
    # system may pause the process at any other.
    return sum(map(_size, elements)) / len(elements), sorted(seconds)[len(seconds) // 2]


def _size(element: Any) -> int:
    return sum(getattr(leaf, "nbytes", None) or sys.getsizeof(leaf) for leaf in flatten(element)[0])


def _map_datasets_below(dataset: Dataset) -> list[Any]:
    """Return the map datasets that a stream reads. Each has a buffer of its own."""
    if not isinstance(dataset, IterDataset):
        return [dataset]
    return [source for parent in dataset.parents for source in _map_datasets_below(parent)]
