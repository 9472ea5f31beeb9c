"""Messages contain Grain's phrase, which people search for, where the situation is the same."""

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


def interleaved(api: Any) -> Any:
    datasets = [api.MapDataset.range(2).to_iter_dataset() for _ in range(2)]
    return iter(api.experimental.InterleaveIterDataset(datasets, cycle_length=2))


def concatenated(api: Any) -> Any:
    stream = api.MapDataset.source([{"x": np.ones(2)}]).to_iter_dataset()
    return list(api.experimental.ConcatThenSplitIterDataset(stream, length_struct={"x": 3, "y": 2}))


CASES: dict[str, tuple[Any, str]] = {
    "other keys": (lambda api: batched(api, {"a": 1}, {"b": 2}), "same structure"),
    "other shapes": (lambda api: batched(api, np.ones(2), np.ones(3)), "same structure"),
    "no output spec": (
        lambda api: api.experimental.get_element_spec(api.MapDataset.range(3).map(lambda x: x)),
        "does not implement `output_spec`",
    ),
    "a feature is missing": (concatenated, "Parent element has structure"),
    "a filter skips all": (filtered, r"skipped 100\.00 % of the last seen 1000 elements\."),
    "a mix of nothing": (
        lambda api: api.MapDataset.mix([api.MapDataset.range(0), api.MapDataset.range(3)]),
        r"All datasets must have positive length for mixing, but dataset\(s\) at index 0 ",
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
