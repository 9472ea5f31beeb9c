from typing import Any

import pytest

from gristmill import (
    DataLoader,
    IndexSampler,
    NoSharding,
    RecordMetadata,
    SequentialSampler,
    ShardOptions,
)
from gristmill.errors import GristmillWarning, PlanError, PlanTypeError


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


@pytest.mark.parametrize("value", [2, NoSharding, "0 of 2"], ids=repr)
def test_shard_options_of_another_kind_are_refused(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`shard_options` must be ShardOptions, got .* Pass"):
        elements(SequentialSampler(6), shard_options=value)


def test_a_shard_without_records_is_warned_of():
    with pytest.warns(GristmillWarning, match=r"gets no records\. Use fewer shards\."):
        assert elements(SequentialSampler(2), shard_options=ShardOptions(2, 3)) == []


@pytest.mark.parametrize(
    "sampler", [SequentialSampler(7), IndexSampler(7), IndexSampler(7, ShardOptions(0, 2))]
)
def test_a_sampler_longer_than_its_source_is_refused_when_the_loader_is_built(sampler: Any):
    message = (
        r"^`sampler` wants 7 records, the source has 6\. "
        r"Pass `num_records=len\(data_source\)` to the sampler\.$"
    )
    with pytest.raises(PlanError, match=message):
        DataLoader(data_source=list("abcdef"), sampler=sampler)


@pytest.mark.parametrize("sampler", [None, 3, IndexSampler, SequentialSampler, {1, 2}], ids=repr)
def test_what_is_no_sampler_is_refused(sampler: Any):
    with pytest.raises(
        PlanTypeError, match=r"^`sampler` must have `__getitem__`, got .* Use `Index"
    ):
        DataLoader(data_source=[1, 2], sampler=sampler)


@pytest.mark.parametrize("sampler", ["ab", [0, 1], (0, 1), b"ab"], ids=repr)
def test_what_gives_no_metadata_is_refused_with_a_way_out(sampler: Any):
    with pytest.raises(TypeError, match="RecordMetadata"):
        list(DataLoader(data_source=[1, 2], sampler=sampler))


class Fixed:
    """A user's sampler that always says the same."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return self.said


@pytest.mark.parametrize("key", [None, 1.7, "1"], ids=repr)
def test_a_record_key_that_is_no_integer_is_refused_and_never_rounded(key: Any):
    sampler = Fixed(RecordMetadata(index=0, record_key=key))
    with pytest.raises(TypeError, match="record_key"):
        elements(sampler)


@pytest.mark.parametrize("key", [-1, 6, 2**40])
def test_a_record_key_out_of_bounds_is_told_with_the_users_line(key: int):
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
