"""How long the ranges are that an executor is given."""

import gc
from collections.abc import Iterator

import pytest

from gristmill.dataset import MapDataset
from gristmill.execute._feed import Pace


def test_blocks_grow_up_to_the_wanted_time():
    pace = Pace(1.0, limit=100)
    pace.observe(1, 0.01)
    assert pace.size == 8
    pace.observe(8, 0.3)
    assert pace.size == 16
    pace.observe(16, 0.6)
    assert pace.size == 16


def test_blocks_shrink_where_they_take_too_long():
    pace = Pace(1.0, limit=100)
    pace.observe(1, 0.3)
    pace.observe(2, 2.5)
    assert pace.size == 1


def test_blocks_that_the_garbage_collector_runs_for_are_halved_for_good():
    pace = Pace(1.0, limit=100)
    pace.observe(1, 0.01)
    pace.observe(8, 0.01, has_collected=True)
    pace.observe(64, 0.3, has_collected=True)
    assert pace.size == 32
    pace.observe(32, 0.01)
    assert pace.size == 32


def test_a_collection_now_and_then_changes_nothing():
    pace = Pace(1.0, limit=64)
    pace.observe(1, 0.01)
    for _ in range(5):
        pace.observe(8, 0.6, has_collected=True)
        pace.observe(8, 0.6)
    assert pace.size == 8


def test_a_block_of_one_is_not_halved():
    pace = Pace(1.0, limit=64)
    for _ in range(5):
        pace.observe(1, 0.6, has_collected=True)
    assert pace.size == 1


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
