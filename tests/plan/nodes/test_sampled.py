from typing import Any

import numpy as np
import polars as pl
import pytest

from gristmill import (
    DataLoader,
    IndexSampler,
    MapDataset,
    NoSharding,
    RangeDataSource,
    RecordMetadata,
    SequentialSampler,
    ShardOptions,
    WeightedSampler,
)
from gristmill._base.indices import as_indices
from gristmill._plan.nodes.sampled import SampleNode, SourceNode
from gristmill.errors import GristmillWarning, PlanError, PlanTypeError


class Reads:
    """A source that records every read."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        self.reads.append(index)
        return index


def node_over(source: Any) -> SourceNode:
    return SourceNode(site="here:1", source=source)


@pytest.mark.parametrize(
    "source", [[1, 2, 3], (1, 2, 3), range(3), np.arange(3), RangeDataSource(0, 3, 1), Reads()]
)
def test_any_object_with_a_length_and_items_is_a_source(source: Any):
    assert node_over(source).length() == 3


def test_building_a_loader_reads_nothing():
    source = Reads()
    DataLoader(data_source=source, sampler=SequentialSampler(3))
    assert source.reads == []


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ([1, 2], "list(<2 records>)"),
        ((1, 2), "tuple(<2 records>)"),
        (range(2), "range(0, 2)"),
        (np.arange(2), "ArraySource(<2 records>, array: int64[])"),
        (RangeDataSource(0, 4, 2), "RangeDataSource(start=0, stop=4, step=2)"),
        (Reads(), "Reads(<3 records>)"),
    ],
)
def test_the_label_of_a_source_contains_neither_data_nor_addresses(source: Any, label: str):
    assert node_over(source).label == label


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (list, r"^`data_source` is the class list\. Pass an instance of it\."),
        ("files", r"^`data_source` is the string 'files'\. Pass a source that reads it, such as"),
        (b"files", r"^`data_source` is the string b'files'\."),
        (MapDataset.range(3).to_iter_dataset(), r"^`data_source` is a stream, an `IterDataset`, "),
        (pl.LazyFrame({"x": [1]}), r"^`data_source` is a query of polars.* `frame\.collect\(\)`"),
        ({"x": np.zeros(3)}, r"^`data_source` is a dict\. Wrap .* `ArraySource\(arrays\)`\."),
        (iter([1]), r"^`data_source` must have `__len__` and `__getitem__`, got .* Make a list"),
        (None, r"^`data_source` must have `__len__` and `__getitem__`, got None\."),
        (3, r"^`data_source` must have `__len__` and `__getitem__`, got 3\."),
        ({1, 2}, r"^`data_source` must have `__len__` and `__getitem__`"),
    ],
)
def test_an_object_that_cannot_be_read_by_index_is_refused(source: Any, message: str):
    with pytest.raises(PlanTypeError, match=message):
        DataLoader(data_source=source, sampler=SequentialSampler(1))


class Odd:
    """A user's sampler: every other record, then the end."""

    def __init__(self, count: int = 3) -> None:
        self.count = count

    def __getitem__(self, index: int) -> RecordMetadata:
        if index >= self.count:
            raise IndexError(index)
        return RecordMetadata(index=index, record_key=2 * index + 1)


class SizedOdd(Odd):
    def __len__(self) -> int:
        return self.count


class ShardedOdd(SizedOdd):
    shard_options = ShardOptions(1, 2)


def elements(sampler: Any, **options: Any) -> list[Any]:
    return list(DataLoader(data_source=list("abcdef"), sampler=sampler, **options))


@pytest.mark.parametrize("sampler", [Odd(), SizedOdd()])
def test_a_users_sampler_orders_the_records(sampler: Any):
    assert elements(sampler) == ["b", "d", "f"]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_length_of_a_sampler_without_one_is_found(count: int):
    loader = DataLoader(data_source=list("abcdef"), sampler=Odd(count))
    assert loader._plan_node.length() == count
    assert elements(Odd(count)) == ["b", "d", "f"][:count]


def test_the_loaders_shard_strides_over_the_samplers_order():
    assert elements(SequentialSampler(6), shard_options=ShardOptions(1, 2)) == ["b", "d", "f"]
    assert elements(SequentialSampler(6), shard_options=ShardOptions(0, 4)) == ["a", "e"]
    assert elements(SequentialSampler(6), shard_options=ShardOptions(0, 4, True)) == ["a"]


def test_the_samplers_own_shard_is_taken_when_the_loader_has_none():
    assert elements(IndexSampler(6, ShardOptions(1, 2), num_epochs=1)) == ["d", "e", "f"]
    assert elements(SequentialSampler(6, ShardOptions(1, 2))) == ["b", "d", "f"]
    assert elements(ShardedOdd()) == ["d"]


def test_the_same_shard_in_both_places_is_one_shard():
    shard = ShardOptions(1, 2)
    assert elements(SequentialSampler(6, shard), shard_options=shard) == ["b", "d", "f"]


def test_shards_that_contradict_each_other_are_refused():
    message = (
        r"^`shard_options` of the loader .* and of the sampler .* contradict each other\. Leave"
    )
    with pytest.raises(PlanError, match=message):
        elements(SequentialSampler(6, ShardOptions(1, 2)), shard_options=ShardOptions(0, 2))


def test_a_users_sampler_that_shards_by_itself_is_read_as_the_loader_requests():
    assert elements(ShardedOdd(), shard_options=NoSharding()) == elements(Odd(3))
    assert elements(ShardedOdd(), shard_options=ShardOptions(0, 3)) == ["b"]


@pytest.mark.parametrize("value", [2, NoSharding, "0 of 2"], ids=repr)
def test_shard_options_of_another_kind_are_refused(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`shard_options` must be ShardOptions, got .* Pass"):
        elements(SequentialSampler(6), shard_options=value)


def test_a_shard_without_records_is_reported_by_a_warning():
    with pytest.warns(GristmillWarning, match=r"gets no records\. Use fewer shards\."):
        assert elements(SequentialSampler(2), shard_options=ShardOptions(2, 3)) == []


@pytest.mark.parametrize(
    "sampler", [SequentialSampler(7), IndexSampler(7), IndexSampler(7, ShardOptions(0, 2))]
)
def test_a_sampler_longer_than_its_source_is_refused_when_the_loader_is_built(sampler: Any):
    message = (
        r"^`sampler` needs 7 records, the source has 6\. "
        r"Pass `num_records=len\(data_source\)` to the sampler\.$"
    )
    with pytest.raises(PlanError, match=message):
        DataLoader(data_source=list("abcdef"), sampler=sampler)


@pytest.mark.parametrize(
    "sampler", [None, 3, IndexSampler, SequentialSampler, {1, 2}, "ab", b"ab", {0: 1}], ids=repr
)
def test_an_object_that_is_not_a_sampler_is_refused(sampler: Any):
    with pytest.raises(
        PlanTypeError, match=r"^`sampler` must have `__getitem__`, got .* Use `Index"
    ):
        DataLoader(data_source=[1, 2], sampler=sampler)


@pytest.mark.parametrize("sampler", [["a"], [None]], ids=repr)
def test_a_sampler_that_does_not_return_metadata_is_refused_with_a_remedy(sampler: Any):
    with pytest.raises(TypeError, match="RecordMetadata"):
        list(DataLoader(data_source=[1, 2], sampler=sampler))


class Fixed:
    """A user's sampler that always returns the same metadata."""

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return self.metadata


@pytest.mark.parametrize("key", [None, 1.7, "1"], ids=repr)
def test_a_record_key_that_is_not_an_integer_is_refused_not_rounded(key: Any):
    sampler = Fixed(RecordMetadata(index=0, record_key=key))
    with pytest.raises(TypeError, match="record_key"):
        elements(sampler)


@pytest.mark.parametrize("key", [-1, 6, 2**40])
def test_a_record_key_out_of_bounds_is_reported_with_the_users_line(key: int):
    with pytest.raises(
        IndexError, match=rf"^The sampler asks for record {key}, the source has 6\."
    ) as e:
        elements(Fixed(RecordMetadata(index=0, record_key=key)))
    assert any(__file__ in note for note in e.value.__notes__)


def test_an_error_of_the_sampler_gains_a_note_with_the_users_line():
    class Fails(SizedOdd):
        def __getitem__(self, index: int) -> RecordMetadata:
            raise KeyError("lost")

    with pytest.raises(KeyError) as caught:
        elements(Fails())
    assert any(__file__ in note and "position 0" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("position", [0, 2**31, 2**53 + 1, 2**61, 2**62, 2**63 - 9])
def test_positions_of_a_shard_of_an_endless_stream_have_exact_indices(position: int):
    sampler = IndexSampler(10, shuffle=True, seed=1, num_epochs=None)
    node = SampleNode(
        site="here:1", parent=node_over(range(10)), sampler=sampler, shard=ShardOptions(3, 7)
    )
    run = range(position, position + 5)
    indices = [7 * (position + k) + 3 for k in range(5)]

    assert list(node.indices(run)) == indices
    assert list(node.indices(as_indices(run))) == indices
    assert list(sampler.keys(as_indices(indices))) == [
        int(sampler.keys(range(index, index + 1))[0]) for index in indices
    ]
    assert node.metadata(position).index == indices[0]


@pytest.mark.parametrize("num_weights", [3, 12])
def test_each_record_needs_a_weight(num_weights: int):
    sampler = WeightedSampler([1.0] * num_weights, seed=0, num_epochs=1)
    with pytest.raises(PlanError, match=f"has {num_weights} weights, .* has 10 records.*and 0 for"):
        DataLoader(data_source=range(10), sampler=sampler)
