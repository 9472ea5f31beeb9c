"""Whole streams of `DataLoader` and `load`: the same elements in the same order as Grain's.

One wanted difference: after a `FlatMap` a random map gets a generator, where Grain passes None.
What is in a batch, shards and arbitrary chains of operations have files of their own.
"""

from typing import Any

import grain.transforms
import numpy as np
import pytest

import gristmill.transforms
from tests.compat.side_by_side import (
    assert_same,
    assert_same_error,
    assert_same_stream,
    batching,
    filtering,
    flat_mapping,
    make_loader,
    mapping,
    older,
    oracle,
    ours,
    random_mapping,
    stream,
)

# Order


@pytest.mark.parametrize("num_records", [1, 2, 3, 17, 300])
@pytest.mark.parametrize("num_epochs", [1, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_order_of_a_stream_is_grains(num_records, num_epochs, shuffle):
    def program(api):
        sampler = api.IndexSampler(num_records, shuffle=shuffle, num_epochs=num_epochs, seed=7)
        return make_loader(api, range(1000, 1000 + num_records), sampler=sampler)

    assert len(assert_same_stream(program)) == num_records * num_epochs


def test_a_stream_without_end_goes_on_as_grains():
    def program(api):
        sampler = api.IndexSampler(23, shuffle=True, seed=1)
        return make_loader(api, range(23), batching(4), sampler=sampler)

    assert len(assert_same_stream(program, limit=40)) == 40


def test_a_sequential_sampler_yields_grains_stream():
    assert_same_stream(
        lambda api: make_loader(
            api,
            range(50, 70),
            random_mapping(lambda x, rng: x + rng.random()),
            sampler=api.SequentialSampler(20, seed=4),
        )
    )


def test_a_range_source_yields_grains_records():
    def program(api):
        return make_loader(api, api.RangeDataSource(10, -15, -3), batching(2))

    assert len(assert_same_stream(program)) == 5


def test_a_sampler_over_more_records_than_the_source_has_wraps_in_grain_and_is_refused_by_ours():
    def program(api):
        return make_loader(api, [10, 11, 12], sampler=api.IndexSampler(5, num_epochs=2, seed=0))

    assert stream(program(oracle)) == [10, 11, 12, 10, 11] * 2
    with pytest.raises(ValueError, match="needs 5 records, the source has 3"):
        program(ours)


def test_a_sampler_over_fewer_records_than_the_source_has_reads_the_first_ones():
    def program(api):
        sampler = api.IndexSampler(4, shuffle=True, num_epochs=2, seed=0)
        return make_loader(api, range(10), sampler=sampler)

    assert sorted(assert_same_stream(program)) == [0, 0, 1, 1, 2, 2, 3, 3]


class Backwards:
    """A user's own sampler; as in Grain it needs no more than `__getitem__`."""

    def __init__(self, api: Any, num_records: int):
        self._api = api
        self._num_records = num_records

    def __getitem__(self, index: int) -> Any:
        if index >= self._num_records:
            raise IndexError(index)
        rng = np.random.default_rng(index)
        return self._api.RecordMetadata(index, record_key=self._num_records - 1 - index, rng=rng)


@pytest.mark.parametrize("shard_count", [1, 2])
def test_a_users_own_sampler_without_a_length_yields_grains_stream(shard_count):
    def program(api):
        return make_loader(
            api,
            range(100, 120),
            random_mapping(lambda x, rng: (x, rng.random())),
            sampler=Backwards(api, 20),
            shard_options=api.ShardOptions(shard_count - 1, shard_count),
        )

    assert assert_same_stream(program)[0][0] == 119 - (shard_count - 1)


def test_a_loader_can_be_iterated_again_and_twice_at_once():
    loader = make_loader(
        ours, range(12), random_mapping(lambda x, rng: x + rng.random()), batching(5)
    )
    first, second = iter(loader), iter(loader)
    interleaved = [next(it) for _ in range(3) for it in (first, second)]
    assert_same(interleaved[::2], stream(loader))
    assert_same(interleaved[1::2], stream(loader))


def test_an_exhausted_iterator_stays_exhausted():
    for api in (oracle, ours):
        iterator = iter(make_loader(api, range(3)))
        assert list(iterator) == [0, 1, 2]
        assert list(iterator) == []


# One operation


def test_a_map_is_applied_as_in_grain():
    assert_same_stream(lambda api: make_loader(api, range(9), mapping(lambda x: (x, x / 3))))


def test_records_that_are_none_are_records_as_in_grain():
    source = [1, None, 3, None]
    assert assert_same_stream(lambda api: make_loader(api, source)) == source
    assert_same_stream(lambda api: make_loader(api, source, filtering(lambda x: x is None)))
    assert_same_stream(
        lambda api: make_loader(api, range(4), mapping(lambda x: x if x % 2 else None))
    )


def test_a_filter_keeps_what_grain_keeps_whatever_truthy_thing_it_returns():
    for keep in (lambda x: x % 3 == 0, lambda x: x % 2, lambda x: np.bool_(x > 4)):
        kept = assert_same_stream(
            lambda api, keep=keep: make_loader(api, range(10), filtering(keep))
        )
        assert 0 < len(kept) < 10


def test_a_filter_that_keeps_nothing_yields_an_empty_stream():
    def program(api):
        return make_loader(api, range(10), filtering(lambda x: False), batching(2))

    assert assert_same_stream(program) == []


@pytest.mark.parametrize("make_children", [list, tuple, iter])
def test_a_flat_map_yields_grains_children_in_order(make_children):
    repeat = flat_mapping(lambda x: make_children([(x, i) for i in range(x % 4)]), max_fan_out=3)
    children = assert_same_stream(lambda api: make_loader(api, range(10), repeat))
    assert len(children) == sum(x % 4 for x in range(10))


@pytest.mark.filterwarnings("ignore:There will be no batch")
@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 10, 11])
def test_batches_are_grains_with_and_without_the_remainder(batch_size, drop_remainder):
    assert_same_stream(
        lambda api: make_loader(api, range(10), batching(batch_size, drop_remainder=drop_remainder))
    )


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_a_batch_fn_gets_grains_lists_of_records(drop_remainder):
    def describe(records):
        return type(records).__name__, len(records), list(records)

    assert_same_stream(
        lambda api: make_loader(
            api, range(10), batching(4, drop_remainder=drop_remainder, batch_fn=describe)
        )
    )


def test_batches_span_epochs_as_grains_do():
    def program(api):
        sampler = api.IndexSampler(5, shuffle=True, num_epochs=3, seed=2)
        return make_loader(api, range(5), batching(4), sampler=sampler)

    assert [len(batch) for batch in assert_same_stream(program)] == [4, 4, 4, 3]


def test_a_stacked_batch_may_be_written_to_as_grains():
    for api in (oracle, ours):
        first, _ = make_loader(api, np.arange(12.0).reshape(4, 3), batching(2))
        assert first.flags.writeable
        first *= 2
        assert first.tolist() == [[0, 2, 4], [6, 8, 10]]


# Randomness


def test_a_random_map_draws_as_in_grain():
    def program(api):
        sampler = api.IndexSampler(20, shuffle=True, num_epochs=2, seed=2**32 - 1)
        draw = random_mapping(
            lambda x, rng: (x, rng.integers(10**9), rng.normal(size=3), rng.permutation(4))
        )
        return make_loader(api, range(20), draw, sampler=sampler)

    assert_same_stream(program)


def test_random_maps_in_a_chain_share_one_generator_that_goes_on():
    draw = random_mapping(lambda x, rng: [*x, rng.random()])
    drawn = assert_same_stream(
        lambda api: make_loader(api, [[]] * 6, draw, draw, mapping(lambda x: x), draw)
    )
    sampler = ours.IndexSampler(6, num_epochs=1, seed=0)
    assert drawn == [sampler[i].rng.random(3).tolist() for i in range(6)]


def test_a_filter_between_random_maps_leaves_the_generators_alone():
    draw = random_mapping(lambda x, rng: [*x, rng.random()])
    kept = assert_same_stream(
        lambda api: make_loader(api, [[]] * 20, draw, filtering(lambda x: x[0] < 0.5), draw)
    )
    assert 0 < len(kept) < 20


def test_after_a_batch_the_last_records_generator_goes_on():
    draw = random_mapping(lambda x, rng: x + rng.random())
    drawn = assert_same_stream(lambda api: make_loader(api, [0.0] * 7, draw, batching(3), draw))
    sampler = ours.IndexSampler(7, num_epochs=1, seed=0)
    last = [sampler[i].rng.random(2)[1] for i in (2, 5, 6)]
    first = [sampler[i].rng.random() for i in range(7)]
    expected = [np.array(first[:3]) + last[0], np.array(first[3:6]) + last[1]]
    assert_same(drawn, [*expected, np.array(first[6:]) + last[2]])


def test_a_filtered_batch_goes_on_with_the_generator_of_its_last_survivor():
    draw = random_mapping(lambda x, rng: x + rng.random())
    assert_same_stream(
        lambda api: make_loader(
            api, range(18), filtering(lambda x: x % 3), batching(4), draw, batching(2), draw
        )
    )


def test_drawing_in_one_record_does_not_disturb_another():
    def draw(x, rng):
        return rng.random(x % 3).tolist(), rng.random()

    assert_same_stream(lambda api: make_loader(api, range(12), random_mapping(draw)))


def test_a_generator_kept_by_the_user_is_not_taken_back():
    # A pool that resets a generator under the user's hands would make these draws equal.
    kept = [
        list(make_loader(api, range(5), random_mapping(lambda x, rng: rng)))
        for api in (oracle, ours)
    ]
    expected, actual = ([rng.random() for rng in generators] for generators in kept)
    assert_same(actual, expected)
    assert len(set(actual)) == 5


def test_without_a_seed_the_random_map_gets_none_in_grain_and_is_refused_by_ours():
    def program(api):
        sampler = api.IndexSampler(3, num_epochs=1)
        return make_loader(api, range(3), random_mapping(lambda x, rng: rng), sampler=sampler)

    assert stream(program(oracle)) == [None, None, None]
    with pytest.raises(ValueError, match="needs a seed"):
        program(ours)


def test_a_tf_random_map_draws_as_in_grain():
    def draw(api):
        base = {oracle: grain.transforms, ours: gristmill.transforms}[api].TfRandomMap

        class Draw(base):
            def np_random_map(self, element, rng):
                return element + rng.random()

        return Draw()

    assert_same_stream(lambda api: make_loader(api, range(8), draw, draw))


def after_flat_map(api: Any) -> Any:
    """Children of children, each with what its generator drew."""
    twice = flat_mapping(lambda x: [[*x, 0], [*x, 1]], max_fan_out=2)
    note = random_mapping(lambda x, rng: (x, None if rng is None else rng.random()))
    sampler = api.IndexSampler(6, shuffle=True, num_epochs=2, seed=3)
    return make_loader(api, [[i] for i in range(6)], twice, twice, note, sampler=sampler)


def test_after_a_flat_map_grain_has_no_generator():
    assert {drawn for _, drawn in after_flat_map(oracle)} == {None}


def test_after_a_flat_map_every_child_has_a_generator_of_its_own():
    children = stream(after_flat_map(ours))
    assert [x for x, _ in children] == [x for x, _ in after_flat_map(oracle)]
    drawn = [value for _, value in children]
    assert all(isinstance(value, float) for value in drawn)
    assert len(set(drawn)) == len(drawn) == 48
    assert stream(after_flat_map(ours)) == children


def test_a_batch_after_a_flat_map_draws_the_same_on_every_run():
    def program():
        return make_loader(
            ours,
            range(5),
            flat_mapping(lambda x: [x, -x, x], max_fan_out=3),
            batching(4),
            random_mapping(lambda x, rng: x + rng.random()),
        )

    batches = stream(program())
    assert len({float(batch[0]) % 1 for batch in batches}) == len(batches) == 4
    assert_same(stream(program()), batches)


# Chains


CHAINS = {
    "map after batch": [batching(4), mapping(lambda x: x * 2)],
    "filter then batch": [filtering(lambda x: x % 3), batching(4)],
    "filter then whole batches": [filtering(lambda x: x % 3), batching(4, drop_remainder=True)],
    "filter after batch": [batching(4), filtering(lambda x: x.sum() % 3)],
    "batch of batch": [batching(3), batching(2), mapping(lambda x: x + 1)],
    "whole batches of whole batches": [
        batching(3, drop_remainder=True),
        batching(2, drop_remainder=True),
    ],
    "flat map after batch": [batching(4), flat_mapping(lambda x: list(x), max_fan_out=4)],
    "batch after flat map": [
        flat_mapping(lambda x: range(x % 3), max_fan_out=2),
        mapping(lambda x: x + 1),
        batching(5),
    ],
    "flat map, filter, batch": [
        flat_mapping(lambda x: [x, x + 100], max_fan_out=2),
        filtering(lambda x: x % 5),
        batching(4),
    ],
    "unbatch and batch again": [
        batching(5),
        flat_mapping(lambda x: list(x), max_fan_out=5),
        batching(2),
    ],
}


@pytest.mark.parametrize("operations", CHAINS.values(), ids=CHAINS.keys())
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_chain_of_operations_yields_grains_stream(operations, shuffle):
    def program(api):
        sampler = api.IndexSampler(24, shuffle=shuffle, num_epochs=2, seed=8)
        return make_loader(api, range(24), *operations, sampler=sampler)

    assert len(assert_same_stream(program)) > 1


# The older operations


def note_metadata(api):
    """A user's own operation: it sees the records, with their metadata, as Grain passes them."""

    def operation(records):
        for record in records:
            metadata = record.metadata
            seen = (metadata.index, metadata.record_key, metadata.rng.random())
            yield api.Record(metadata, (record.data, *seen))

    return operation


OLDER = {
    "map": [older("MapOperation", lambda x: x + 1)],
    "map by keyword": [older("MapOperation", map_function=lambda x: x + 1)],
    "random map": [older("RandomMapOperation", lambda x, rng: x + rng.random())],
    "filter": [older("FilterOperation", condition_function=lambda x: x % 3)],
    "batch": [older("BatchOperation", batch_size=4)],
    "whole batches": [older("BatchOperation", batch_size=5, drop_remainder=True)],
    "batch with a function": [older("BatchOperation", batch_size=5, batch_fn=tuple)],
    "all of them": [
        older("MapOperation", lambda x: x + 1),
        older("FilterOperation", lambda x: x % 3),
        older("RandomMapOperation", lambda x, rng: x + rng.random()),
        older("BatchOperation", 3),
        older("RandomMapOperation", lambda x, rng: x * rng.random()),
    ],
    "with the newer ones": [
        random_mapping(lambda x, rng: x + rng.integers(10)),
        older("RandomMapOperation", lambda x, rng: x + rng.random()),
        batching(3),
        older("MapOperation", lambda x: x * 2),
    ],
}


@pytest.mark.parametrize("operations", OLDER.values(), ids=OLDER.keys())
def test_older_operations_yield_grains_stream(operations):
    def program(api):
        sampler = api.IndexSampler(13, shuffle=True, num_epochs=2, seed=6)
        return make_loader(api, range(13), *operations, sampler=sampler)

    assert len(assert_same_stream(program)) > 1


# load


LOADS = {
    "in order": {"num_epochs": 2},
    "shuffled": {"num_epochs": 2, "shuffle": True, "seed": 5},
    "in batches": {"num_epochs": 2, "batch_size": 4},
    "in whole batches": {"num_epochs": 1, "batch_size": 4, "drop_remainder": True},
    "without end": {"shuffle": True, "seed": 5, "batch_size": 3},
}


@pytest.mark.parametrize("options", LOADS.values(), ids=LOADS.keys())
def test_load_yields_grains_stream(options):
    def program(api):
        inline = api.ReadOptions(num_threads=0)
        return api.load(range(10), read_options=inline, worker_count=0, **options)

    assert len(assert_same_stream(program, limit=30)) > 1


def test_load_transforms_shards_and_batches_as_grain_does():
    def program(api):
        draw = random_mapping(lambda x, rng: x + rng.random())(api)
        return api.load(
            range(10),
            num_epochs=2,
            shuffle=True,
            seed=1,
            shard_options=api.ShardOptions(1, 2, drop_remainder=True),
            transformations=(draw, filtering(lambda x: x > 1)(api)),
            batch_size=3,
            read_options=api.ReadOptions(num_threads=0),
        )

    assert_same_stream(program)


# What is refused


REFUSALS = {
    "a negative number of workers": lambda api: api.DataLoader(
        data_source=range(3), sampler=api.IndexSampler(3), worker_count=-1
    ),
    "a negative worker buffer": lambda api: api.DataLoader(
        data_source=range(3), sampler=api.IndexSampler(3), worker_buffer_size=-1
    ),
    "a negative number of threads": lambda api: api.ReadOptions(num_threads=-1),
    "a negative prefetch buffer": lambda api: api.ReadOptions(prefetch_buffer_size=-1),
    "an empty older batch": lambda api: api.BatchOperation(0),
    "an empty batch": lambda api: stream(make_loader(api, range(3), batching(0))),
    "batches of unlike shapes": lambda api: stream(
        make_loader(api, range(3), mapping(np.zeros), batching(2))
    ),
    "batches of unlike structures": lambda api: stream(
        make_loader(api, [{"a": 1}, {"b": 1}], batching(2))
    ),
    "batches of a ragged last batch": lambda api: stream(
        make_loader(api, range(5), batching(2), batching(3))
    ),
    "an error of the user's": lambda api: stream(
        make_loader(api, range(3), mapping(lambda x: 1 // (x - 1)))
    ),
}


@pytest.mark.filterwarnings("ignore::gristmill.errors.GristmillWarning")
def test_a_users_own_operation_sees_the_metadata_of_grain():
    assert_same_stream(lambda api: make_loader(api, range(3), note_metadata))


def test_a_users_own_sampler_without_shard_options_is_refused_by_grain_and_not_sharded_by_ours():
    with pytest.raises(ValueError, match="No shard options"):
        oracle.DataLoader(data_source=range(3), sampler=Backwards(oracle, 3))
    loader = ours.DataLoader(data_source=range(3), sampler=Backwards(ours, 3))
    assert list(loader) == [2, 1, 0]


@pytest.mark.parametrize("refused", REFUSALS.values(), ids=REFUSALS.keys())
def test_what_grains_loader_refuses_ours_refuses_with_the_same_error(refused):
    assert_same_error(refused)


def test_elements_before_one_that_raises_are_delivered_as_in_grain():
    delivered = {}
    for api in (oracle, ours):
        iterator = iter(make_loader(api, range(10), mapping(lambda x: 6 // (6 - x))))
        delivered[api] = [next(iterator) for _ in range(6)]
        with pytest.raises(ZeroDivisionError):
            next(iterator)
    assert delivered[ours] == delivered[oracle]


def test_the_multiprocessing_options_are_kept_as_grain_keeps_them():
    for api in (oracle, ours):
        sampler = api.IndexSampler(3)
        loader = api.DataLoader(
            data_source=range(3), sampler=sampler, worker_count=2, worker_buffer_size=4
        )
        options = loader.multiprocessing_options
        assert isinstance(options, api.MultiprocessingOptions)
        assert (options.num_workers, options.per_worker_buffer_size) == (2, 4)
