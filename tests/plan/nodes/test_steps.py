from typing import Any

import numpy as np
import pytest

from gristmill import (
    Batch,
    DataLoader,
    FilterOperation,
    FlatMap,
    IndexSampler,
    Map,
    MapWithIndex,
    RandomMap,
    SequentialSampler,
    ShardOptions,
)
from gristmill._plan.nodes.base import ENDLESS
from gristmill._plan.nodes.steps import MapNode
from gristmill._plan.traverse import sample_of


class Negate(Map):
    def map(self, element: Any) -> Any:
        return -element


class NegateColumns(Negate):
    def map_batch(self, columns: Any) -> Any:
        return -columns


class Indexed(MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return index, element


class Draw(RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element, int(rng.integers(1000))


class Count(FlatMap):
    max_fan_out = 5

    def flat_map(self, element: Any) -> Any:
        return (element for _ in range(element))


def loader(*operations: Any, **options: Any) -> DataLoader:
    """Return a loader of six integers."""
    return DataLoader(
        data_source=np.arange(6),
        sampler=SequentialSampler(6, seed=1),
        operations=operations,
        **options,
    )


def batches(total: int, *operations: Any, num_epochs: int | None = 1) -> DataLoader:
    sampler = IndexSampler(total, num_epochs=num_epochs)
    return DataLoader(data_source=range(total), sampler=sampler, operations=operations)


def test_a_map_is_as_long_and_as_dense_as_its_parent():
    plan = loader(Negate())._plan_node
    assert plan.length() == sample_of(plan).length() == 6
    assert plan.is_dense


def test_a_map_has_a_batch_function_only_if_the_transform_has_one():
    plain, columnar = loader(Negate())._plan_node, loader(NegateColumns())._plan_node
    assert isinstance(plain, MapNode)
    assert isinstance(columnar, MapNode)
    assert plain.batch_function is None
    assert columnar.batch_function is not None
    assert list(loader(Negate())) == list(loader(NegateColumns()))


def test_labels_contain_the_kind_of_step_and_the_name():
    steps = (Negate(), Indexed(), Draw(), FilterOperation(bool), Count(), Batch(2, True))
    assert [loader(step)._plan_node.label for step in steps] == [
        "Map Negate",
        "MapWithIndex Indexed",
        "RandomMap Draw",
        "Filter bool",
        "FlatMap Count",
        "Batch(2, drop_remainder=True)",
    ]


def test_a_map_with_index_counts_in_the_samplers_stream_in_any_shard():
    sharded = loader(Indexed(), shard_options=ShardOptions(1, 3))
    assert list(sharded) == [(1, 1), (4, 4)]


def test_a_filter_has_as_many_positions_as_its_parent_and_is_not_dense():
    filtered = loader(FilterOperation(lambda x: x > 3))
    assert filtered._plan_node.length() == 6
    assert not filtered._plan_node.is_dense
    assert list(filtered) == [4, 5]


def test_a_filter_that_passes_nothing_ends_the_stream():
    assert list(loader(FilterOperation(lambda x: False))) == []


def test_a_flat_map_has_as_many_positions_as_its_parent_and_is_not_dense():
    plan = loader(Count())._plan_node
    assert plan.length() == 6
    assert not plan.is_dense


def test_a_flat_map_may_return_none_one_or_several_in_any_iterable():
    assert list(loader(Count())) == [1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5]


def test_a_fan_out_of_0_is_allowed_while_there_are_no_outputs():
    class Nothing(FlatMap):
        max_fan_out = 0

        def flat_map(self, element: Any) -> Any:
            return []

    assert list(loader(Nothing())) == []


@pytest.mark.parametrize("drop_remainder", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("total", [7, 8, 20])
def test_the_length_of_a_batch_node_is_the_number_of_batches(
    total: int, size: int, drop_remainder: bool
):
    some = batches(total, Batch(size, drop_remainder))
    assert some._plan_node.length() == len(list(some))


@pytest.mark.parametrize("inner", [1, 2, 3])
@pytest.mark.parametrize("outer", [1, 2, 3])
def test_batches_of_batches_contain_every_record_once(inner: int, outer: int):
    some = batches(6 * inner * outer, Batch(inner), Batch(outer))
    assert some._plan_node.length() == 6
    assert [n for batch in some for n in batch.ravel().tolist()] == [*range(6 * inner * outer)]


def test_batches_of_an_endless_stream_are_as_many_as_grain_counts():
    assert batches(3, Batch(2), num_epochs=None)._plan_node.length() == 2**62
    assert batches(3, Batch(1), num_epochs=None)._plan_node.length() == ENDLESS


def test_batches_span_epochs():
    some = batches(3, Batch(2), num_epochs=2)
    assert [batch.tolist() for batch in some] == [[0, 1], [2, 0], [1, 2]]


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_a_batch_above_a_filter_contains_only_elements_that_passed(size: int, drop_remainder: bool):
    some = batches(100, FilterOperation(lambda x: x % 3 == 0), Batch(size, drop_remainder))
    passed = list(range(0, 100, 3))
    expected = [passed[i : i + size] for i in range(0, len(passed), size)]
    if drop_remainder:
        expected = [batch for batch in expected if len(batch) == size]
    assert [batch.tolist() for batch in some] == expected


def test_a_batch_fn_is_called_instead_of_stacking():
    assert list(batches(5, Batch(2, batch_fn=list))) == [[0, 1], [2, 3], [4]]
