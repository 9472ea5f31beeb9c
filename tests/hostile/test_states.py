"""A state may contain anything: it is restored, or a `StateError` that changes nothing."""

import copy
import json
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill._checkpoint.files import read_state
from gristmill._checkpoint.state import _checksum
from gristmill.errors import GristmillError, StateError
from gristmill.experimental import (
    BestFitPackIterDataset,
    CacheIterDataset,
    ConcatThenSplitIterDataset,
    ElasticIterator,
    FirstFitPackIterDataset,
    InterleaveIterDataset,
    LimitIterDataset,
    PackAndBatchOperation,
    RebatchIterDataset,
    RepeatIterDataset,
    WindowShuffleIterDataset,
    ZipIterDataset,
)

Make = Callable[[], gm.IterDataset[Any]]


def numbers(count: int = 60) -> gm.IterDataset[Any]:
    return gm.MapDataset.range(count).shuffle(seed=1).to_iter_dataset()


def documents() -> gm.IterDataset[Any]:
    return (
        gm.MapDataset.range(60)
        .map(lambda number: {"x": np.full(1 + number % 5, number)})
        .to_iter_dataset()
    )


PLANS: dict[str, Make] = {
    "records": numbers,
    "filter": lambda: numbers().filter(lambda number: number % 3 > 0),
    "window": lambda: WindowShuffleIterDataset(numbers(), window_size=7, seed=1),
    "first fit": lambda: FirstFitPackIterDataset(
        documents(), length_struct={"x": 8}, num_packing_bins=3
    ),
    "concat": lambda: ConcatThenSplitIterDataset(documents(), length_struct={"x": 8}),
    "best fit": lambda: BestFitPackIterDataset(
        documents(), length_struct={"x": 8}, num_packing_bins=3
    ),
    "buckets": lambda: documents().bucket_by_length([2, 4, 6], batch_sizes=3, length="x"),
    "sliding window": lambda: numbers().window(5, 2),
    "flat map": lambda: numbers().batch(4).unbatch(),
    "concatenation": lambda: gm.IterDataset.concatenate(
        [numbers(), numbers(20).shuffle(3, seed=1)]
    ),
    "rebatch": lambda: RebatchIterDataset(numbers().batch(4), 3),
    "repeat": lambda: RepeatIterDataset(numbers(9), num_epochs=5),
    "limit": lambda: LimitIterDataset(numbers(), 50),
    "zip": lambda: ZipIterDataset([numbers(), numbers()]),
    "mix": lambda: gm.IterDataset.mix(
        [numbers(), WindowShuffleIterDataset(numbers(), window_size=5, seed=2)]
    ),
    "interleave": lambda: InterleaveIterDataset(
        [gm.MapDataset.range(10), gm.MapDataset.range(20)] * 3, cycle_length=3
    ),
    "counted": lambda: numbers().map_with_index(lambda index, number: (index, number)),
    "cache": lambda: CacheIterDataset(numbers()),
    "generator": lambda: gm.from_generator(lambda: iter(range(60))),
}

JUNK = [None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1.5, "", "x", [], [0], {}, {"a": 1}, [[]] * 3]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside a value."""
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def mutate(state: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    changed = copy.deepcopy(state)
    del changed["checksum"]
    for _ in range(rng.choice([1, 1, 2])):
        fields = ("cursor", "shard", "skipped")
        inside = [path for path in places(changed) if path and path[0] in fields]
        *parents, last = rng.choice(inside)
        target = changed
        for key in parents:
            target = target[key]
        if isinstance(target[last], list) and rng.random() < 0.3:
            target[last] = target[last] * 2 if rng.random() < 0.5 else target[last][:-1]
        else:
            target[last] = copy.deepcopy(rng.choice(JUNK))
    return {**changed, "checksum": _checksum(changed)}


@pytest.mark.parametrize("make", PLANS.values(), ids=PLANS.keys())
def test_a_mutated_state_is_restored_or_a_state_error_that_changes_nothing(make: Make):
    rng = random.Random(0)
    expected = [repr(element) for element in make()]
    num_refused = 0
    for attempt in range(60):
        iterator = iter(make())
        for _ in range(rng.randrange(1, 4)):
            next(iterator)
        state = json.loads(json.dumps(iterator.get_state()))
        mutated = mutate(state, rng)
        try:
            iterator.set_state(mutated)
        except StateError:
            num_refused += 1
            assert json.loads(json.dumps(iterator.get_state())) == state
            rest = [repr(element) for element in iterator]
            assert rest == expected[len(expected) - len(rest) :], attempt
            continue
        try:
            for _ in range(3):
                next(iterator, None)
        except GristmillError:
            pass
    assert num_refused > 10


def with_fields(state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    changed = {name: value for name, value in state.items() if name != "checksum"} | fields
    return {**changed, "checksum": _checksum(changed)}


def gathered(shards: object, **others: Any) -> dict[str, Any]:
    state = json.loads(json.dumps(iter(numbers()).get_state()))
    del state["cursor"], state["shard"]
    return with_fields(state, cursors={"shards": shards, "each": [0]}, skipped=[], **others)


def test_more_rows_of_some_bins_than_of_all_are_refused():
    iterator = iter(PLANS["best fit"]())
    next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    below, row, _, *end = state["cursor"][0]
    with pytest.raises(StateError):
        iterator.set_state(with_fields(state, cursor=[[below, row, row - 1, *end]]))
    assert json.loads(json.dumps(iterator.get_state())) == state


class Evens:
    """An operation over an iterator of records, as in Grain."""

    def __call__(self, input_iterator: Iterator[gm.Record[Any]]) -> Iterator[gm.Record[Any]]:
        return (record for record in input_iterator if record.data["x"][0] % 2 == 0)


@pytest.mark.filterwarnings("ignore:The operation Evens takes an iterator")
@pytest.mark.parametrize(
    "cursor", [[[-3]], [[10**6]], [[10**30]], [["x"]], [[3], -1], [[3], "x"], [[-3], 0], []]
)
@pytest.mark.parametrize(
    "operation",
    [PackAndBatchOperation(length_struct={"x": 6}, batch_size=2), Evens()],
    ids=["packing", "user's"],
)
def test_a_position_of_an_operation_that_cannot_be_is_refused(operation: Any, cursor: list[Any]):
    records = [{"x": np.full(1 + number % 3, number)} for number in range(40)]
    iterator = iter(
        gm.DataLoader(
            data_source=records,
            sampler=gm.SequentialSampler(len(records)),
            operations=[operation],
        )
    )
    next(iterator)
    state = json.loads(iterator.get_state())
    with pytest.raises(StateError, match="corrupt"):
        iterator.set_state(json.dumps(with_fields(state, cursor=[cursor])).encode())
    assert json.loads(iterator.get_state()) == state


@pytest.mark.parametrize("shards", [10**9, 10**30, 2**16 + 1, 0, -1, True, 2.0, "2", None, [2]])
def test_a_number_of_shards_that_cannot_be_is_refused_in_little_memory(shards: object):
    iterator = iter(numbers())
    tracemalloc.start()
    try:
        with pytest.raises(StateError):
            iterator.set_state(gathered(shards))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert len(list(iterator)) == 60


def test_a_long_history_is_refused():
    iterator = iter(numbers())
    packed = {"shards": 2**16, "each": [0]}
    with pytest.raises(StateError):
        iterator.set_state(gathered(1, taken=[packed] * 5000))
    assert len(list(iterator)) == 60


@pytest.mark.parametrize(
    "skipped",
    [
        [{"cursor": [0], "position": "x", "record": 0, "step": "", "error": ""}],
        [{"cursor": [0], "position": 0, "record": 0, "step": 1, "error": ""}],
        [{"cursor": ["x"], "position": 0, "record": 0, "step": "", "error": ""}],
        [{"cursor": [0]}],
        [None],
    ],
)
def test_a_ledger_of_other_types_is_refused(skipped: Any):
    iterator = iter(numbers())
    state = json.loads(json.dumps(iterator.get_state()))
    with pytest.raises(StateError):
        iterator.set_state(with_fields(state, skipped=skipped))


def test_bytes_that_are_not_utf8_are_a_state_error(tmp_path: Path):
    (tmp_path / "process_0-of-1.json").write_bytes(b'{"gristmill": "\xff"}')
    with pytest.raises(StateError, match=r"not UTF-8"):
        read_state(tmp_path, like={})


def test_deep_nesting_is_a_state_error():
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(StateError):
        iter(numbers()).set_state({"gristmill": 1, "cursor": nested, "checksum": 0})
    while nested:  # freed from the outside in: the interpreter would recurse
        nested = nested.pop()


class Own(gm.IterDataset[int]):
    def __iter__(self) -> Any:
        return iter(numbers(5))


UNCUT: dict[str, Make] = {
    "Interleave": PLANS["interleave"],
    "Own": Own,
    "Limit": PLANS["limit"],
    "Interleave in a mixture": lambda: gm.IterDataset.mix([numbers(), PLANS["interleave"]()]),
}


@pytest.mark.parametrize("name", UNCUT)
def test_a_stream_that_cannot_be_cut_is_refused_by_name(name: str):
    with pytest.raises(ValueError, match=rf"`{name.split()[0]}.*cannot be distributed over shards"):
        ElasticIterator(UNCUT[name](), 4, gm.ShardOptions(0, 2))


def test_a_stream_that_cannot_be_cut_is_refused_by_name_on_another_number_of_shards():
    def shard(index: int, count: int) -> gm.IterDataset[Any]:
        own = gm.MapDataset.range(60)[index::count].to_iter_dataset()
        return gm.IterDataset.mix([own, PLANS["interleave"]()])

    states: list[Any] = []
    for index in range(2):
        iterator = iter(shard(index, 2))
        next(iterator)
        states.append(iterator.get_state())
    restored = iter(shard(0, 3))
    with pytest.raises(StateError, match=r"`Interleave.*Restore on 2 shards"):
        restored.set_state(gm.checkpoint.gather_states(states))
    assert next(restored) == 0
