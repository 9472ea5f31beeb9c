import pickle
from typing import Any

import numpy as np
import pytest

from gristmill import IndexSampler, NoSharding, Sampler, SequentialSampler, ShardOptions
from gristmill._data.sampling.shard_lengths import ENDLESS
from gristmill.errors import PlanError, PlanTypeError


def keys_of(sampler: Any) -> list[int]:
    return [metadata.record_key for metadata in sampler]


def test_a_sequential_sampler_yields_each_record_once_in_order():
    sampler = SequentialSampler(5)
    assert len(sampler) == 5
    assert keys_of(sampler) == [0, 1, 2, 3, 4]
    assert [metadata.index for metadata in sampler] == [0, 1, 2, 3, 4]


def test_an_index_sampler_repeats_the_records_for_each_epoch():
    assert keys_of(IndexSampler(3, num_epochs=2)) == [0, 1, 2, 0, 1, 2]


def test_each_epoch_is_shuffled_again():
    keys = keys_of(IndexSampler(50, shuffle=True, seed=1, num_epochs=2))
    assert sorted(keys[:50]) == sorted(keys[50:]) == list(range(50))
    assert keys[:50] != keys[50:]


def test_without_epochs_there_is_no_end():
    sampler = IndexSampler(3)
    assert len(sampler) == ENDLESS
    assert sampler[10**12].record_key == 10**12 % 3


@pytest.mark.parametrize("drop_remainder", [True, False])
def test_the_shards_of_a_sampler_partition_the_records(drop_remainder: bool):
    seen: list[int] = []
    for shard in range(3):
        options = ShardOptions(shard, 3, drop_remainder)
        sampler = IndexSampler(10, options, shuffle=True, seed=5, num_epochs=1)
        count = sampler.num_positions(options)
        seen += np.asarray(sampler.keys(range(shard, shard + 3 * count, 3))).tolist()
    assert sorted(seen) == list(range(9 if drop_remainder else 10))


@pytest.mark.parametrize(
    "sampler",
    [
        SequentialSampler(7),
        IndexSampler(7, num_epochs=3),
        IndexSampler(7, shuffle=True, seed=3, num_epochs=3),
        IndexSampler(7, ShardOptions(1, 2), num_epochs=3),
        IndexSampler(7, ShardOptions(1, 2, True), shuffle=True, seed=3, num_epochs=3),
    ],
    ids=repr,
)
def test_many_keys_at_once_are_those_asked_for_one_by_one(sampler: Any):
    shards = sampler.shard_options.shard_count
    first = sampler.shard_options.shard_index
    indices = range(first, len(sampler), shards)
    one_by_one = [sampler[index].record_key for index in indices]
    assert np.asarray(sampler.keys(indices)).tolist() == one_by_one
    assert np.asarray(sampler.keys(np.array(indices))).tolist() == one_by_one
    assert np.asarray(sampler.keys(indices[1:3])).tolist() == one_by_one[1:3]


@pytest.mark.parametrize("index", [-1, 5, 2**62])
@pytest.mark.parametrize("sampler", [SequentialSampler(5), IndexSampler(5, num_epochs=1)])
def test_an_index_out_of_bounds_is_refused(sampler: Any, index: int):
    with pytest.raises(IndexError, match=rf"^`index` must be in \[0, 5\), got {index}\.$"):
        sampler[index]


def test_a_seed_assigns_each_record_a_generator_of_its_own():
    sampler = SequentialSampler(3, seed=40)
    draws = [int(metadata.rng.integers(2**30)) for metadata in sampler if metadata.rng]
    expected = [
        int(np.random.Generator(np.random.Philox(key=40 + i)).integers(2**30)) for i in range(3)
    ]
    assert draws == expected


def test_without_a_seed_there_is_no_generator():
    assert SequentialSampler(3)[0].rng is None
    assert IndexSampler(3)[0].rng is None


def test_a_shard_without_records_reports_that_when_asked_for_one():
    sampler = IndexSampler(1, ShardOptions(1, 2), num_epochs=1)
    assert sampler.num_positions(sampler.shard_options) == 0
    with pytest.raises(IndexError):
        sampler[0]


def test_the_samplers_fulfil_the_protocol():
    assert isinstance(SequentialSampler(1), Sampler)
    assert isinstance(IndexSampler(1), Sampler)


@pytest.mark.parametrize("kind", [SequentialSampler, IndexSampler])
def test_numpy_integers_are_integers(kind: Any):
    sampler = kind(np.int32(3), seed=np.uint32(7))
    assert sampler.num_records == 3
    assert type(sampler.num_records) is int
    assert type(sampler.seed) is int
    assert sampler[np.int64(2)].record_key == 2


@pytest.mark.parametrize("value", [3.0, "3", True, np.float64(3), [3]], ids=repr)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SequentialSampler, "num_records"),
        (SequentialSampler, "seed"),
        (IndexSampler, "num_records"),
        (IndexSampler, "num_epochs"),
        (IndexSampler, "seed"),
    ],
)
def test_anything_but_an_integer_is_refused_by_name(kind: Any, name: str, value: Any):
    with pytest.raises(PlanTypeError, match=rf"^`{name}` must be an integer, got "):
        kind(**{"num_records": 3, name: value})


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SequentialSampler, "num_records"),
        (IndexSampler, "num_records"),
        (IndexSampler, "num_epochs"),
    ],
)
def test_no_records_or_epochs_are_refused(kind: Any, name: str, value: int):
    expected = rf"^(`{name}` must be at least 1|{name} must be positive), got {value}\."
    with pytest.raises(PlanError, match=expected):
        kind(**{"num_records": 3, name: value})


@pytest.mark.parametrize("kind", [SequentialSampler, IndexSampler])
def test_a_negative_seed_is_refused(kind: Any):
    with pytest.raises(
        PlanError, match=r"^Seed must be an integer between 0 and 2\*\*\d+-1, got -1\."
    ):
        kind(3, seed=-1)


def test_the_largest_seed_is_taken_and_one_more_is_refused():
    assert IndexSampler(3, seed=2**32 - 1).seed == 2**32 - 1
    with pytest.raises(
        PlanError, match=r"^Seed must be an integer between 0 and 2\*\*32-1, got 4294967296\."
    ):
        IndexSampler(3, seed=2**32)


def test_an_oversized_seed_of_a_sequential_sampler_is_refused():
    with pytest.raises(PlanError, match=r"^Seed must be an integer between 0 and 2\*\*\d+-1, got "):
        SequentialSampler(3, seed=2**64)


def test_shuffling_needs_a_seed():
    with pytest.raises(
        PlanError, match=r"^Shuffling requires specifying a seed\. Pass one, such as `seed=0`\.$"
    ):
        IndexSampler(3, shuffle=True)


@pytest.mark.parametrize("value", [2, 1.0, "no", None], ids=repr)
def test_shuffle_is_true_or_false(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`shuffle` must be True or False, got "):
        IndexSampler(3, shuffle=value, seed=1)


@pytest.mark.parametrize("value", [None, 2, NoSharding, "shard"], ids=repr)
@pytest.mark.parametrize("kind", [SequentialSampler, IndexSampler])
def test_shard_options_are_refused_by_name(kind: Any, value: Any):
    with pytest.raises(PlanTypeError, match=r"^`shard_options` must be ShardOptions, got .* Pass"):
        kind(3, value)


def test_more_epochs_than_fit_into_a_length_are_refused_or_endless():
    try:
        sampler = IndexSampler(3, num_epochs=2**63)
    except PlanError:
        return
    assert len(sampler) == ENDLESS


@pytest.mark.parametrize("sampler", [SequentialSampler(3, seed=1), IndexSampler(3, num_epochs=1)])
def test_samplers_can_be_pickled(sampler: Any):
    again = pickle.loads(pickle.dumps(sampler))
    assert repr(again) == repr(sampler)
    assert keys_of(again) == keys_of(sampler)
