"""The shared memory of a run stays within what the documentation promises."""

import sys
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

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> Any:
        return np.full(self.sizes[index] * MB, index, np.uint8)


def peak_bytes(sizes: list[int], *, num_kept: int, **options: Any) -> int:
    """Return the most shared memory that was mapped while a consumer keeps some elements."""
    loader = gm.DataLoader(
        data_source=Arrays(sizes),
        sampler=gm.SequentialSampler(len(sizes)),
        operations=[gm.Batch(1)],
        worker_count=NUM_WORKERS,
        worker_options=gm.WorkerOptions(**options),
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

    # While `next` runs, the caller has none, or those that it keeps.
    num_blocks = 2 * NUM_WORKERS + num_kept
    # Slots belong to a worker. What the other one has is no use to it, if blocks come unevenly: on
    # a busy machine each of them has once computed all blocks of the look-ahead, and more.
    num_blocks += 4 * NUM_WORKERS

    assert peak_bytes(sizes, num_kept=num_kept) <= num_blocks * largest * slack
