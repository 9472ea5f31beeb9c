"""Messages contain Grain's phrase, which people search for, where the situation is the same."""

import importlib
import re
from typing import Any

import grain
import numpy as np
import pytest

import gristmill


def flat_mapped(api: Any) -> Any:
    class Twice(api.experimental.FlatMapTransform):
        max_fan_out = 2

        def flat_map(self, element: Any) -> Any:
            return [element, element]

    return api.experimental.FlatMapMapDataset(api.MapDataset.range(3), Twice())


def filtered(api: Any) -> Any:
    stream = api.MapDataset.range(3000).to_iter_dataset().filter(lambda _: False)
    options = api.experimental.DatasetOptions(filter_raise_threshold_ratio=0.5)
    return list(api.experimental.WithOptionsIterDataset(stream, options))


def batched(api: Any, *elements: Any) -> Any:
    return list(api.MapDataset.source(list(elements)).batch(2))


def operation_batched(api: Any, *elements: Any) -> Any:
    python = importlib.import_module(f"{api.__name__}.python")
    records = [python.Record(python.RecordMetadata(index=0), element) for element in elements]
    return list(python.BatchOperation(2)(iter(records)))


def interleaved(api: Any) -> Any:
    datasets = [api.MapDataset.range(2).to_iter_dataset() for _ in range(2)]
    return iter(api.experimental.InterleaveIterDataset(datasets, cycle_length=2))


def concatenated(api: Any, **lengths: int) -> Any:
    stream = api.MapDataset.source([{"x": np.ones(2), "z": np.ones(2)}]).to_iter_dataset()
    return list(api.experimental.ConcatThenSplitIterDataset(stream, length_struct=lengths))


CASES: dict[str, tuple[Any, str]] = {
    "other keys": (
        lambda api: batched(api, {"a": 1}, {"b": 2}),
        "Expected all input elements to have the same structure but got:",
    ),
    "other shapes": (
        lambda api: batched(api, np.ones(2), np.ones(3)),
        "Expected all input elements to have the same structure but got:",
    ),
    "records of older operations": (
        lambda api: operation_batched(api, {"a": 1}, {"b": 2}),
        "Record structures do not match",
    ),
    "lists of other lengths": (
        lambda api: operation_batched(api, [1, 2], [1, 2, 3]),
        "Record structures do not match",
    ),
    "no epochs": (
        lambda api: api.MapDataset.range(3).repeat(0),
        "num_epochs must be positive",
    ),
    "no epochs of a stream": (
        lambda api: api.experimental.RepeatIterDataset(
            api.MapDataset.range(3).to_iter_dataset(), num_epochs=0
        ),
        "num_epochs must be positive",
    ),
    "an empty batch": (lambda api: api.MapDataset.range(3).batch(0), "batch_size must be positive"),
    "an empty batch of a stream": (
        lambda api: api.MapDataset.range(3).to_iter_dataset().batch(0),
        "batch_size must be positive",
    ),
    "a large seed": (
        lambda api: api.MapDataset.range(3).shuffle(seed=2**33),
        r"Seed must be an integer between 0 and 2\*\*32-1",
    ),
    "a sampler without a seed": (
        lambda api: api.samplers.IndexSampler(
            3, shuffle=True, shard_options=api.sharding.NoSharding()
        ),
        "Shuffling requires specifying a seed",
    ),
    "a filter before a batch": (
        lambda api: api.MapDataset.range(3).filter(bool).batch(2),
        "`MapDataset.filter` because `filter` can discard elements",
    ),
    "a flat map before a batch": (
        lambda api: flat_mapped(api).batch(2),
        "`FlatMapMapDataset` can discard elements",
    ),
    "a shard past the last": (
        lambda api: api.sharding.ShardOptions(2, 2),
        "Shard shard_index must be in",
    ),
    "no output spec": (
        lambda api: api.experimental.get_element_spec(api.MapDataset.range(3).map(lambda x: x)),
        "does not implement `output_spec`",
    ),
    "a feature is missing": (
        lambda api: concatenated(api, x=3, z=3, y=2),
        "Parent element has structure",
    ),
    "a feature without a length": (
        lambda api: concatenated(api, x=3),
        "Parent element has structure",
    ),
    "a document that is too long": (
        lambda api: list(
            api.experimental.FirstFitPackIterDataset(
                api.MapDataset.source([{"x": np.ones(5)}]).to_iter_dataset(),
                length_struct={"x": 3},
                num_packing_bins=2,
            )
        ),
        "must be truncated to max length",
    ),
    "a filter skips all": (filtered, r"skipped 100\.00 % of the last seen 1000 elements\."),
    "a mix of nothing": (
        lambda api: api.MapDataset.mix([api.MapDataset.range(size) for size in (0, 3, 0)]),
        r"must have positive length for mixing, but dataset\(s\) at index 0 .*, index 2 ",
    ),
    "a batch after a filter": (
        lambda api: api.MapDataset.range(3).filter(bool).batch(2),
        "`MapDataset.batch` can not follow `MapDataset.filter`",
    ),
    "a batch after a flat map": (
        lambda api: flat_mapped(api).batch(2),
        "`MapDataset.batch` can not follow `FlatMapMapDataset`",
    ),
    "endless concatenation": (
        lambda api: api.MapDataset.concatenate([api.MapDataset.range(3).repeat()] * 2),
        "Cannot concatenate infinite datasets",
    ),
    "a slice that is none": (
        lambda api: api.MapDataset.range(3).slice(5),
        "sl is not a slice: <class 'int'>",
    ),
    "no seed": (lambda api: api.MapDataset.range(3).shuffle(), "`shuffle` requires a seed"),
    "repeat twice": (
        lambda api: api.MapDataset.range(3).repeat().repeat(),
        "Repeating already infinite dataset .* does nothing",
    ),
    "no transformation": (
        lambda api: api.MapDataset.range(3).apply(3),
        "Transformation type: 3 is not supported",
    ),
    "an index past the end": (
        lambda api: api.experimental.set_next_index(iter(api.MapDataset.range(20)), 21),
        "Checkpoint `next_index` 21 is out of range for dataset of length 20",
    ),
    "the next index of an interleave": (
        lambda api: api.experimental.get_next_index(interleaved(api)),
        "get_next_index is not supported for .*Interleave",
    ),
    "a state past the end": (
        lambda api: iter(api.MapDataset.range(20).to_iter_dataset()).set_state({"next_index": 30}),
        "Checkpoint `next_index` 30 is out of range for dataset of length 20",
    ),
    "a state before the start": (
        lambda api: iter(api.MapDataset.range(20).to_iter_dataset()).set_state({"next_index": -1}),
        "Checkpoint `next_index` -1 is out of range for dataset of length 20",
    ),
    "a weight of zero": (
        lambda api: api.MapDataset.mix([api.MapDataset.range(3)] * 2, weights=[1, 0]),
        "Must specify all non-zero proportions for mixing",
    ),
    "nothing to zip": (
        lambda api: api.experimental.ZipMapDataset([]),
        "At least one parent must be provided",
    ),
    "no streams to zip": (
        lambda api: api.experimental.ZipIterDataset([]),
        "At least one parent must be provided",
    ),
    "zipped datasets of other lengths": (
        lambda api: api.experimental.ZipMapDataset([api.MapDataset.range(size) for size in (3, 2)]),
        "All parents must have the same length",
    ),
    "a stream that is too short to zip": (
        lambda api: list(
            api.experimental.ZipIterDataset(
                [api.MapDataset.range(size).to_iter_dataset() for size in (3, 3, 2)]
            )
        ),
        "ZipIterDataset argument 3 is shorter than arguments 1-2",
    ),
    "threads below zero": (
        lambda api: api.ReadOptions(num_threads=-1),
        "num_threads must be non-negative, got -1",
    ),
    "a buffer below zero": (
        lambda api: api.ReadOptions(prefetch_buffer_size=-1),
        "prefetch_buffer_size must be non-negative, got -1",
    ),
    "a prefetch below zero": (
        lambda api: api.experimental.ThreadPrefetchIterDataset(
            api.MapDataset.range(3).to_iter_dataset(), prefetch_buffer_size=-1
        ),
        "`prefetch_buffer_size` must be greater than or equal to 0, got -1",
    ),
    **{
        f"an index shuffle of {rounds} rounds": (
            lambda api, rounds=rounds: api.experimental.index_shuffle(
                1, max_index=5, seed=1, rounds=rounds
            ),
            "rounds must be an even integer between 4 and 1024, ",
        )
        for rounds in (2, 5, 2000)
    },
    "an index shuffle below zero": (
        lambda api: api.experimental.index_shuffle(-1, max_index=5, seed=1, rounds=4),
        r"index must be in \[0, max_index\]",
    ),
    "an index shuffle past the end": (
        lambda api: api.experimental.index_shuffle(6, max_index=5, seed=1, rounds=4),
        r"index must be in \[0, max_index\]",
    ),
    "setting the index of an interleave": (
        lambda api: api.experimental.set_next_index(interleaved(api), 1),
        "set_next_index is not supported for .*Interleave",
    ),
}


@pytest.mark.parametrize(("program", "phrase"), CASES.values(), ids=CASES.keys())
def test_the_message_contains_the_phrase_of_grains(program: Any, phrase: str):
    with pytest.raises(Exception, match=phrase) as theirs:
        program(grain)
    with pytest.raises(Exception, match=phrase) as own:
        program(gristmill)

    assert isinstance(own.value, theirs.type), f"{own.type} is no {theirs.type}"
    assert re.search(phrase, str(own.value))  # in the message itself, not in a note
