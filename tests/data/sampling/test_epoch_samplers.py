import pickle
from typing import Any

import numpy as np
import pytest

from gristmill import IndexSampler, ShardOptions, SubsetSampler, WeightedSampler
from gristmill._data.sampling.samplers import BlockSampler
from gristmill._data.sampling.shard_lengths import ENDLESS
from gristmill.errors import PlanError, PlanTypeError


def keys_of(sampler: Any) -> list[int]:
    return [metadata.record_key for metadata in sampler]


SAMPLERS = [
    SubsetSampler([5, 1, 5, 2], num_epochs=3, seed=1),
    SubsetSampler([5, 1, 4, 2], shuffle=True, num_epochs=3, seed=1),
    WeightedSampler([1, 2, 0, 3], num_epochs=3, seed=1),
    WeightedSampler([1, 2, 0, 3], num_epochs=3, seed=1, replacement=False),
    WeightedSampler([1, 2, 0, 3], num_epochs=3, seed=1, num_samples=7),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_many_keys_at_once_are_those_of_each_index(sampler: Any):
    each = keys_of(sampler)
    assert len(each) == len(sampler) == 3 * sampler.epoch_size
    assert sampler.keys(range(len(sampler))).tolist() == each
    some = np.array([5, 0, 8, 5])
    assert sampler.keys(some).tolist() == [each[index] for index in some]
    assert sampler.keys(np.array([], dtype=np.int64)).tolist() == []
    assert keys_of(pickle.loads(pickle.dumps(sampler))) == each


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_the_engine_reads_many_indices_at_once(sampler: Any):
    assert isinstance(sampler, BlockSampler)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_indices_out_of_bounds_are_refused(sampler: Any):
    for index in (-1, len(sampler)):
        with pytest.raises(IndexError, match=r"`index` must be in \[0, "):
            sampler[index]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_the_generator_of_a_record_is_that_of_its_index(sampler: Any):
    expected = IndexSampler(10, num_epochs=9, seed=1)[4].rng
    assert expected is not None
    assert sampler[4].rng.integers(10**9) == expected.integers(10**9)


def test_epochs_are_shuffled_differently():
    keys = keys_of(SubsetSampler(range(40, 80), shuffle=True, seed=0, num_epochs=2))
    assert sorted(keys[:40]) == sorted(keys[40:]) == list(range(40, 80))
    assert keys[:40] != keys[40:]


def test_an_endless_sampler_has_the_largest_length():
    assert len(SubsetSampler([1])) == ENDLESS
    assert len(WeightedSampler([1], seed=0)) == ENDLESS


def test_shards_stride_over_the_stream():
    sampler = WeightedSampler([1, 2, 3], num_epochs=1, num_samples=7, seed=0)
    assert [sampler.num_positions(ShardOptions(s, 3)) for s in range(3)] == [3, 2, 2]


def test_the_repr_distinguishes_samplers():
    shown = {repr(sampler) for sampler in SAMPLERS}
    assert len(shown) == len(SAMPLERS)
    assert repr(SubsetSampler([1, 2])) != repr(SubsetSampler([2, 1]))
    assert repr(WeightedSampler([1, 2], seed=0)) != repr(WeightedSampler([2, 1], seed=0))


def test_balanced_takes_labels_in_any_form():
    records = [{"kind": "cat"}] * 8 + [{"kind": "dog"}] * 2
    labels = [record["kind"] for record in records]
    samplers = [
        WeightedSampler.balanced(records, label, num_epochs=1, seed=0)
        for label in ("kind", labels, lambda record: record["kind"])
    ]
    assert keys_of(samplers[0]) == keys_of(samplers[1]) == keys_of(samplers[2])
    assert samplers[0].num_records == 10


@pytest.mark.parametrize(
    ("indices", "kind", "message"),
    [
        ([], PlanError, "at least one index"),
        ([1, -2], PlanError, "`indices` must be at least 0, got -2"),
        ([0.5], PlanTypeError, "`indices` must be integers"),
        ([True, False], PlanTypeError, "np.flatnonzero"),
        ([[1, 2]], PlanTypeError, "must be a list or an array of numbers"),
        (3, PlanTypeError, "must be a list or an array of numbers"),
        ([[1], [2, 3]], PlanTypeError, "must be a list or an array of numbers"),
    ],
)
def test_indices_that_are_none_are_refused(indices: Any, kind: type, message: str):
    with pytest.raises(kind, match=message):
        SubsetSampler(indices)


def test_a_shuffle_needs_a_seed():
    with pytest.raises(PlanError, match="Shuffling requires specifying a seed"):
        SubsetSampler([1], shuffle=True)
