"""One implementation of each map, whatever the index and the generator come from."""

from typing import Any

import numpy as np
import pytest

from gristmill import (
    ArraySource,
    DataLoader,
    IndexSampler,
    Map,
    MapDataset,
    MapWithIndex,
    RandomMap,
    ShardOptions,
)
from gristmill._base.trees.columns import Columns
from gristmill._engine.access.cut import cut_plan
from gristmill._engine.access.reader import open_cut, open_dataset
from gristmill._engine.blocks.block import BlockResult


class PairWithIndex(MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return index, element


class Draw(RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element, int(rng.integers(10**9))


def draw(element: Any, rng: np.random.Generator) -> Any:
    return Draw().random_map(element, rng)


def sampled(positions: range, *operations: Any) -> BlockResult:
    loader = DataLoader(
        data_source=range(20),
        sampler=IndexSampler(20, num_epochs=1, seed=5),
        shard_options=ShardOptions(1, 2),
        operations=operations,
    )
    return open_cut(cut_plan(loader._plan_node, skips_errors=False, below_batches=False))(positions)


def test_the_index_is_that_of_the_samplers_stream_or_of_the_dataset():
    dataset: Any = MapDataset.range(100, 120)[::2].map_with_index(lambda i, x: (i, x))

    assert sampled(range(3, 5), PairWithIndex()).block.rows() == [(7, 7), (9, 9)]
    assert open_dataset(dataset._plan_node)(range(3, 5)).block.rows() == [(3, 106), (4, 108)]


def test_elements_of_a_stream_are_numbered_without_gaps():
    numbers = MapDataset.range(6).filter(lambda x: x % 2 == 1).to_iter_dataset()

    assert list(numbers.map_with_index(lambda i, x: (i, x))) == [(0, 1), (1, 3), (2, 5)]


def test_a_sampled_record_draws_from_seed_plus_index():
    expected = [
        (index, int(np.random.Generator(np.random.Philox(key=5 + index)).integers(10**9)))
        for index in (7, 9)
    ]

    assert sampled(range(3, 5), Draw()).block.rows() == expected


def test_a_later_random_step_continues_with_the_same_generator():
    rng = np.random.Generator(np.random.Philox(key=5 + 7))
    first, second = (int(rng.integers(10**9)) for _ in range(2))

    assert sampled(range(3, 4), Draw(), Draw()).block.rows() == [((7, first), second)]


def test_an_element_of_a_dataset_or_a_stream_draws_by_seed_and_index():
    def by_counter(index: int) -> int:
        bits: Any = np.random.Philox(9)
        state = bits.state
        state["state"]["counter"][3] = index
        bits.state = state
        return int(np.random.Generator(bits).integers(10**9))

    dataset: Any = MapDataset.range(100, 120).random_map(draw, seed=9)
    stream = MapDataset.range(3).to_iter_dataset().random_map(draw, seed=9)

    assert open_dataset(dataset._plan_node)(range(7, 8)).block.rows() == [(107, by_counter(7))]
    assert list(stream) == [(index, by_counter(index)) for index in range(3)]


class AddOne(Map):
    """Raises for one element: by columns as by rows, or by columns only."""

    def __init__(self, bad_row: int, bad_column: int) -> None:
        self._bad_row = bad_row
        self._bad_column = bad_column

    def map(self, element: Any) -> Any:
        if element == self._bad_row:
            raise ValueError("by rows")
        return element + 1

    def map_batch(self, columns: Any) -> Any:
        if self._bad_column in columns:
            raise ValueError("by columns")
        return columns + 1


@pytest.mark.parametrize(
    ("bad", "num_mapped", "message"),
    [((-1, -1), 9, "None"), ((4, 4), 4, "by rows"), ((-1, 6), 6, "by columns")],
)
def test_columns_are_mapped_up_to_the_element_that_fails(
    bad: tuple[int, int], num_mapped: int, message: str
):
    dataset: Any = MapDataset.source(ArraySource(np.arange(9))).map(AddOne(*bad))

    result = open_dataset(dataset._plan_node)(range(9))

    assert result.block.rows() == list(range(1, num_mapped + 1))
    assert str(result.error) == message
    assert isinstance(result.block.data, Columns) is (result.error is None)
    if result.error is not None:
        assert f"on element {num_mapped}." in result.error.__notes__[0]
