"""Shards deal the records out: all of them, each to one."""

import warnings
from collections import Counter
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import (
    Batch,
    DataLoader,
    IndexSampler,
    Map,
    MapWithIndex,
    NoSharding,
    SequentialSampler,
    ShardOptions,
)
from gristmill.errors import GristmillWarning
from tests.policies import EAGER, with_policy
from tests.properties.pipelines import AHEAD

LAW = settings(deadline=None, print_blob=True, max_examples=60)
SIZES = st.integers(1, 50)
COUNTS = st.integers(1, 7)
EPOCHS = st.integers(1, 3)


class WithIndex(MapWithIndex):
    def map_with_index(self, index: int, element: int) -> tuple[int, int]:
        return index, element


def read_shards(
    style: str,
    *,
    size: int,
    count: int,
    drop: bool = False,
    epochs: int = 1,
    shuffle: bool = False,
    operations: tuple[Any, ...] = (),
) -> list[list[Any]]:
    """Read every shard of a source of `size` records, dealt out by the sampler or the loader."""
    streams: list[list[Any]] = []
    for index in range(count):
        shard = ShardOptions(index, count, drop)
        in_sampler = NoSharding() if style == "loader" else shard
        if style == "sequential":
            sampler = SequentialSampler(size, in_sampler)
        else:
            sampler = IndexSampler(size, in_sampler, shuffle, epochs, seed=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GristmillWarning)
            loader = DataLoader(
                data_source=range(size),
                sampler=sampler,
                shard_options=shard if style == "loader" else None,
                operations=operations,
                read_options=AHEAD,
            )
        streams.append(list(with_policy(loader, EAGER)))
    return streams


@pytest.mark.parametrize("style", ["index", "loader"])
@given(size=SIZES, count=COUNTS, epochs=EPOCHS, shuffle=st.booleans())
@LAW
def test_shards_yield_each_record_once_an_epoch(
    size: int, count: int, epochs: int, shuffle: bool, style: str
):
    streams = read_shards(style, size=size, count=count, epochs=epochs, shuffle=shuffle)

    assert Counter(chain(*streams)) == dict.fromkeys(range(size), epochs)
    lengths = [len(stream) for stream in streams]
    assert max(lengths) - min(lengths) <= (epochs if style == "index" else 1)


@given(size=SIZES, count=COUNTS)
@LAW
def test_shards_of_a_sequential_sampler_stride_over_the_records(size: int, count: int):
    streams = read_shards("sequential", size=size, count=count)

    assert streams == [list(range(index, size, count)) for index in range(count)]


@pytest.mark.parametrize("style", ["index", "sequential", "loader"])
@given(size=SIZES, count=COUNTS, epochs=EPOCHS, shuffle=st.booleans())
@LAW
def test_shards_without_the_remainder_are_equally_long_and_disjoint(
    size: int, count: int, epochs: int, shuffle: bool, style: str
):
    operations = (WithIndex(),)
    epochs = 1 if style == "sequential" else epochs
    streams = read_shards(
        style,
        size=size,
        count=count,
        drop=True,
        epochs=epochs,
        shuffle=shuffle,
        operations=operations,
    )

    total = size * epochs // count if style == "loader" else size // count * epochs
    assert [len(stream) for stream in streams] == [total] * count
    everything = list(chain(*streams))
    assert len({index for index, _ in everything}) == len(everything)
    assert max(Counter(record for _, record in everything).values(), default=0) <= epochs


@given(size=SIZES, count=COUNTS, epochs=EPOCHS, shuffle=st.booleans())
@LAW
def test_shards_of_the_loader_put_back_in_turn_are_the_whole_stream(
    size: int, count: int, epochs: int, shuffle: bool
):
    operations = (WithIndex(),)
    how = {"size": size, "epochs": epochs, "shuffle": shuffle, "operations": operations}
    (whole,) = read_shards("loader", count=1, **how)
    streams = read_shards("loader", count=count, **how)

    assert [streams[place % count][place // count] for place in range(len(whole))] == whole


@pytest.mark.parametrize("style", ["index", "sequential"])
@given(size=SIZES, count=COUNTS, epochs=EPOCHS)
@LAW
def test_a_shard_of_the_sampler_keeps_to_its_own_records_in_every_epoch(
    size: int, count: int, epochs: int, style: str
):
    epochs = 1 if style == "sequential" else epochs
    streams = read_shards(style, size=size, count=count, epochs=epochs, shuffle=True)

    for stream in streams:
        piece = len(stream) // epochs
        owned = [set(stream[start : start + piece]) for start in range(0, len(stream), piece or 1)]
        assert all(epoch == owned[0] and len(epoch) == piece for epoch in owned)


class AsTuple(Map):
    def map(self, element: Any) -> tuple[int, ...]:
        return tuple(element.tolist())


@given(size=SIZES, count=COUNTS, batch_size=st.integers(1, 5))
@LAW
def test_batches_of_shards_hold_each_record_once(size: int, count: int, batch_size: int):
    operations = (Batch(batch_size), AsTuple())
    streams = read_shards("loader", size=size, count=count, operations=operations)

    records = [record for stream in streams for batch in stream for record in batch]
    assert sorted(records) == list(range(size))
