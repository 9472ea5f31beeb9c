"""The shared memory of a run stays within what the documentation promises.

`tests/engine/executors/pools/test_memory_bound.py` tests the same for any order of events.
"""

import os
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import gristmill as gm
from tests.faults.processes import disregard_mappings, shared_bytes, until

cloudpickle.register_pickle_by_value(sys.modules[__name__])

MB = 1 << 20
NUM_WORKERS = 2
NUM_BLOCKS = 24

SIZES = {
    "constant": [32] * NUM_BLOCKS,
    "growing": list(range(17, 17 + NUM_BLOCKS)),
    "shrinking": list(range(17 + NUM_BLOCKS, 17, -1)),
    "varying": np.random.default_rng(0).integers(17, 41, NUM_BLOCKS).tolist(),
}
"""Megabytes of each element: large enough that memory counts more than speed."""


class Arrays:
    """Arrays of some sizes."""

    def __init__(self, sizes: list[int], slow: Collection[int] = ()) -> None:
        self.sizes = sizes
        self.slow = slow

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> Any:
        if index in self.slow:
            time.sleep(0.1)
        return np.full(self.sizes[index] * MB, index, np.uint8)


def peak_bytes(
    sizes: list[int], *, num_kept: int = 0, slow: Collection[int] = (), num_workers: int = 2
) -> int:
    """Return the most shared memory that was mapped while a consumer keeps the first elements."""
    loader = gm.DataLoader(
        data_source=Arrays(sizes, slow),
        sampler=gm.SequentialSampler(len(sizes)),
        operations=[gm.Batch(1)],
        worker_count=num_workers,
    )
    kept: list[Any] = []
    peak = 0
    with loader, iter(loader) as iterator:
        for index in range(len(sizes)):
            batch = next(iterator)
            assert batch.shape == (1, sizes[index] * MB)
            assert set(batch[0, :: 1 << 18].tolist()) == {index}
            if index < num_kept:
                kept.append(batch)
            del batch
            peak = max(peak, iterator.stats().shared_memory_bytes)
    return peak


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("num_kept", [0, 3])
def test_two_blocks_of_each_worker_and_those_that_are_kept(name: str, num_kept: int):
    sizes = SIZES[name]
    largest = max(sizes) * MB
    slack = 1.02 if name == "constant" else 1.125 * 1.02

    # The two blocks of a worker include those that the caller uses. Batches that it keeps come on
    # top; while it does, each worker may have one more, as it cannot use the memory of others.
    num_blocks = 2 * NUM_WORKERS
    if num_kept:
        num_blocks += num_kept + NUM_WORKERS

    assert peak_bytes(sizes, num_kept=num_kept) <= num_blocks * largest * slack


@pytest.mark.parametrize("num_workers", [2, 3])
def test_workers_of_which_now_one_and_now_another_is_slow(num_workers: int):
    sizes = SIZES["constant"]

    peak = peak_bytes(sizes, slow={5, 6, 12, 17}, num_workers=num_workers)

    assert peak <= 2 * num_workers * sizes[0] * MB * 1.02


def test_a_worker_that_starts_late_does_not_let_the_other_one_use_more(tmp_path: Path):
    sizes = SIZES["constant"]
    may_start = tmp_path / "may start"

    def wait_for_it(number: int, num_workers: int) -> None:
        until(lambda: number == 0 or may_start.exists(), "the other worker has read some records")

    loader = gm.DataLoader(
        data_source=Arrays(sizes),
        sampler=gm.SequentialSampler(len(sizes)),
        worker_count=2,
        worker_options=gm.WorkerOptions(worker_init_fn=wait_for_it),
    )
    with loader, iter(loader) as iterator:
        next(iterator)
        until(
            lambda: iterator.stats().shared_memory_bytes >= 2 * sizes[0] * MB,
            "it reads two records",
        )
        may_start.touch()
        peak = 0
        for _ in iterator:
            peak = max(peak, iterator.stats().shared_memory_bytes)

    assert peak <= 4 * sizes[0] * MB * 1.02


def is_exact(loader: gm.DataLoader) -> bool:
    """Return whether a loader reports the bytes that are mapped now, besides some of its plan."""
    return 0 <= shared_bytes(os.getpid()) - loader.stats().shared_memory_bytes < MB


@pytest.mark.parametrize("ends", [gm.DataLoader.close, lambda loader: None])
def test_a_loader_counts_what_is_mapped_now(ends: Callable[[gm.DataLoader], None]):
    sizes = [2] * 8
    loader = gm.DataLoader(
        data_source=Arrays(sizes), sampler=gm.SequentialSampler(len(sizes)), worker_count=2
    )
    disregard_mappings()
    kept = list(loader)  # the iterator is gone

    ends(loader)

    until(lambda: is_exact(loader), "it reports what is mapped")
    assert loader.stats().shared_memory_bytes >= sum(sizes) * MB
    kept.clear()
    until(lambda: loader.stats().shared_memory_bytes == 0, "nothing is reported any more")
    assert is_exact(loader)
    loader.close()


def test_iterators_that_take_turns_at_the_same_workers_count_their_memory_once():
    sizes = [2] * 8
    loader = gm.DataLoader(
        data_source=Arrays(sizes), sampler=gm.SequentialSampler(len(sizes)), worker_count=2
    )
    disregard_mappings()
    with loader:
        iterators = [iter(loader) for _ in range(3)]
        kept = [list(iterator) for iterator in iterators].pop()

        until(lambda: is_exact(loader), "it reports what is mapped")
        assert loader.stats().shared_memory_bytes >= sum(sizes) * MB
        assert len(kept) == len(sizes)


def test_one_worker_has_two_blocks_besides_the_one_in_use():
    assert peak_bytes(SIZES["constant"], num_workers=1) <= 3 * SIZES["constant"][0] * MB * 1.02
