"""How long the ranges are that an executor is given."""

import gc
import itertools
from collections.abc import Iterator

import pytest

from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.loader import load
from gristmill._engine.stages import ranges as _feed
from gristmill._engine.stages.ranges import GC_RETRY_BLOCKS, BlockSizer


def test_blocks_grow_up_to_the_wanted_time():
    pace = BlockSizer(1.0, limit=100)
    pace.observe(1, 0.01)
    assert pace.size == 8
    pace.observe(8, 0.3)
    assert pace.size == 16
    pace.observe(16, 0.6)
    assert pace.size == 16


def test_blocks_shrink_where_they_take_too_long():
    pace = BlockSizer(1.0, limit=100)
    pace.observe(1, 0.3)
    pace.observe(2, 2.5)
    assert pace.size == 1


def test_blocks_that_the_garbage_collector_runs_for_are_halved():
    pace = BlockSizer(1.0, limit=100)
    pace.observe(1, 0.01)
    pace.observe(8, 0.01, has_collected=True)
    pace.observe(64, 0.3, has_collected=True)
    assert pace.size == 32
    pace.observe(32, 0.01)
    assert pace.size == 32


def test_after_many_blocks_without_garbage_longer_ones_are_tried_again():
    pace = BlockSizer(1.0, limit=100)
    pace.observe(1, 0.01)
    pace.observe(8, 0.6, has_collected=True)
    pace.observe(8, 0.6, has_collected=True)
    sizes = [(pace.observe(pace.size, 0.01), pace.size)[1] for _ in range(6 * GC_RETRY_BLOCKS)]
    assert sizes[GC_RETRY_BLOCKS - 2 :: GC_RETRY_BLOCKS] == [4, 8, 16, 32, 64, 100]


def test_a_collection_now_and_then_changes_nothing():
    pace = BlockSizer(1.0, limit=64)
    pace.observe(1, 0.01)
    for _ in range(5):
        pace.observe(8, 0.6, has_collected=True)
        pace.observe(8, 0.6)
    assert pace.size == 8


def test_a_block_of_one_is_not_halved():
    pace = BlockSizer(1.0, limit=64)
    for _ in range(5):
        pace.observe(1, 0.6, has_collected=True)
    assert pace.size == 1


@pytest.mark.parametrize("worker_count", [0, 1])
def test_garbage_of_other_threads_does_not_shorten_the_blocks_of_workers(
    worker_count: int, monkeypatch: pytest.MonkeyPatch
):
    seen: list[bool] = []

    def observe(
        self: BlockSizer, size: int, seconds: float, *, has_collected: bool = False
    ) -> None:
        seen.append(has_collected)

    monkeypatch.setattr(BlockSizer, "observe", observe)
    collections = itertools.count()
    monkeypatch.setattr(_feed, "_num_collections", lambda: next(collections))
    assert list(load(range(20), num_epochs=1, worker_count=worker_count)) == list(range(20))

    assert any(seen) is (worker_count == 0)


@pytest.fixture
def num_collections() -> Iterator[list[int]]:
    """Count the collections of each generation from here on."""
    counts = [0, 0, 0]

    def count(phase: str, info: dict[str, int]) -> None:
        counts[info["generation"]] += phase == "start"

    gc.callbacks.append(count)
    yield counts
    gc.callbacks.remove(count)


def test_records_that_are_containers_do_not_keep_the_garbage_collector_busy(
    num_collections: list[int],
):
    records = MapDataset.range(2000 * 64).map(lambda number: ([number], [number]))
    for _ in records.batch(64, batch_fn=len).to_iter_dataset():
        pass
    # A batch of 64 has 192 containers. In blocks as long as time allows there would be a collection
    # for every 700: hundreds. To find the right length takes about thirty.
    assert sum(num_collections) < 100
