"""The shared memory of a run stays within what the documentation promises."""

import sys
import time
from collections.abc import Collection
from typing import Any

import cloudpickle
import numpy as np
import pytest

import gristmill as gm

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
    """Return the most shared memory that was mapped while a consumer keeps some elements."""
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
            kept.append(next(iterator))
            assert kept[-1].shape == (1, sizes[index] * MB)
            assert set(kept[-1][0, :: 1 << 18].tolist()) == {index}
            del kept[: -num_kept or None]
            peak = max(peak, iterator.stats().shared_memory_bytes)
    return peak


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("num_kept", [0, 3])
def test_two_blocks_of_each_worker_and_those_that_are_kept(name: str, num_kept: int):
    sizes = SIZES[name]
    largest = max(sizes) * MB
    slack = 1.02 if name == "constant" else 1.125 * 1.02

    # The two blocks of a worker include the one that the caller uses. Batches that it keeps come on
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


def test_one_worker_has_two_blocks_besides_the_one_in_use():
    assert peak_bytes(SIZES["constant"], num_workers=1) <= 3 * SIZES["constant"][0] * MB * 1.02
