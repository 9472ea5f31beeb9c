"""States that Grain's `DataLoader` writes: without workers it continues, others report why not."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import grain
import hypothesis
import numpy as np
import pytest
from absl import flags
from hypothesis import given
from hypothesis import strategies as st

import gristmill
from gristmill._checkpoint.files import read_state
from gristmill.errors import StateError
from tests.compat.random_chains import Chain, chains
from tests.compat.side_by_side import (
    STEADY,
    assert_same,
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

DRAW = random_mapping(lambda x, rng: x + rng.random())
SPLIT = flat_mapping(lambda x: range(x, x + x % 4), max_fan_out=3)
PIPELINES = {
    "nothing": [],
    "random map, batch, random map": [DRAW, batching(3), DRAW],
    "whole batches": [batching(4, drop_remainder=True)],
    "batch of batch": [batching(2, drop_remainder=True), batching(2)],
    "filter and batch": [filtering(lambda x: x % 3), batching(2)],
    "a filter that ends the stream": [filtering(lambda x: x < 4), batching(3)],
    "flat map": [SPLIT],
    "flat map and batch": [SPLIT, batching(3)],
    "a filter below a flat map": [filtering(lambda x: x % 3 == 1), SPLIT],
    "filters around a flat map": [
        filtering(lambda x: x % 3 == 1),
        SPLIT,
        filtering(lambda x: x % 2),
        batching(2),
    ],
    "batches that are split": [
        filtering(lambda x: x % 4),
        batching(3),
        flat_mapping(lambda x: list(x)[:2], max_fan_out=2),
        batching(2),
    ],
    "two flat maps": [
        flat_mapping(lambda x: range(x, x + x % 3), max_fan_out=2),
        filtering(lambda x: x % 2),
        SPLIT,
        filtering(lambda x: x % 5),
    ],
    "three flat maps": [flat_mapping(lambda x: [x] * (x % 3), max_fan_out=2)] * 3,
    "older operations": [
        older("FilterOperation", lambda x: x % 3),
        older("RandomMapOperation", lambda x, rng: x + rng.random()),
        older("BatchOperation", 2),
    ],
}


def program_of(*operations: Any, source: Any = range(17), **options: Any) -> Any:
    def program(api: Any) -> Any:
        chosen = {"shuffle": True, "num_epochs": 2, "seed": 5, **options}
        sampler = api.IndexSampler(len(source), **chosen)
        return make_loader(api, source, *operations, sampler=sampler)

    return program


def run_grain(program: Any) -> tuple[list[Any], list[bytes]]:
    """All elements, and the states before the first, after each, and after the end."""
    iterator = iter(program(oracle))
    elements, states = [], [iterator.get_state()]
    for element in iterator:
        elements.append(element)
        states.append(iterator.get_state())
    return elements, [*states, iterator.get_state()]


def resume(program: Any, state: Any) -> list[Any]:
    iterator = iter(program(ours))
    iterator.set_state(state)
    return stream(iterator)


def grains_state(program: Any, taken: int = 3) -> bytes:
    iterator = iter(program(oracle))
    for _ in range(taken):
        next(iterator)
    return iterator.get_state()


# Without workers


@pytest.mark.parametrize("operations", PIPELINES.values(), ids=PIPELINES.keys())
def test_every_state_of_grains_loader_goes_on_with_grains_stream(operations: Any):
    program = program_of(*operations)
    whole, states = run_grain(program)
    for cut, state in enumerate(states):
        assert_same(resume(program, state), whole[cut:], f"resumed at {cut}")


@pytest.mark.parametrize("shard_in_sampler", [False, True])
@pytest.mark.parametrize("shard_index", [0, 1, 2])
def test_states_of_shards_go_on(shard_in_sampler: bool, shard_index: int):
    def program(api: Any) -> Any:
        shard = {"shard_options": api.ShardOptions(shard_index, 3, drop_remainder=True)}
        sampler = api.IndexSampler(
            17, shuffle=True, num_epochs=2, seed=5, **(shard if shard_in_sampler else {})
        )
        sharding = {} if shard_in_sampler else shard
        return make_loader(api, range(17), DRAW, batching(2), sampler=sampler, **sharding)

    whole, states = run_grain(program)
    for cut, state in enumerate(states):
        assert_same(resume(program, state), whole[cut:], f"resumed at {cut}")


@pytest.mark.filterwarnings("ignore:There will be no batch")
@hypothesis.settings(STEADY, max_examples=60)
@given(chain=chains(), where=st.floats(0, 1))
def test_a_state_of_any_chain_of_operations_goes_on(chain: Chain, where: float):
    whole, states = run_grain(chain)
    cut = round(where * (len(states) - 1))
    assert_same(resume(chain, states[cut]), whole[cut:], f"resumed at {cut}")


def test_grains_place_within_a_batch_after_an_error_is_the_place_here():
    bad = {5}

    def refuse(x: int) -> int:
        if x in bad:
            raise ValueError(x)
        return x

    def program(api: Any) -> Any:
        return make_loader(api, range(12), mapping(refuse), batching(4))

    iterator = iter(program(oracle))
    next(iterator)
    with pytest.raises(ValueError, match="5"):
        next(iterator)
    state = iterator.get_state()
    bad.clear()

    assert_same(resume(program, state), stream(iterator))


def test_a_stream_without_end_goes_on_far_from_its_start():
    program = program_of(DRAW, batching(3), num_epochs=None)
    iterator = iter(program(oracle))
    for _ in range(40):
        next(iterator)
    resumed = iter(program(ours))
    resumed.set_state(iterator.get_state())

    assert_same(list(islice(resumed, 5)), list(islice(iterator, 5)))


@pytest.mark.parametrize("num_records", [65_536, 65_537, 65_538])
@pytest.mark.parametrize("shard_count", [1, 4])
def test_within_an_epoch_that_grain_shuffles_otherwise_the_state_is_refused(
    num_records: int, shard_count: int
):
    def program(api: Any) -> Any:
        sampler = api.IndexSampler(num_records, shuffle=True, seed=5, num_epochs=2)
        shard = api.ShardOptions(0, shard_count)
        return make_loader(api, range(num_records), sampler=sampler, shard_options=shard)

    state = grains_state(program)
    iterator = iter(program(ours))
    if num_records == 65_537:
        with pytest.raises(StateError, match=r"within an epoch of 65537 records\. Grain's shuffle"):
            iterator.set_state(state)
    else:
        iterator.set_state(state)
        assert next(iterator) == next(islice(program(oracle), 3, None))


@pytest.mark.parametrize("shard_count", [1, 4])
def test_between_epochs_it_does_not_matter_how_grain_shuffles(shard_count: int):
    def program(api: Any) -> Any:
        sampler = api.IndexSampler(65_537, shuffle=True, seed=5, num_epochs=2)
        shard = api.ShardOptions(0, shard_count)
        return make_loader(api, range(65_537), sampler=sampler, shard_options=shard)

    theirs = iter(program(oracle))
    body = json.loads(theirs.get_state())
    given = -(-65_537 // shard_count)  # of the first epoch, by the first shard
    body["last_seen_indices"] = {"0": (given - 1) * shard_count}
    iterator = iter(program(ours))

    iterator.set_state(json.dumps(body).encode())

    assert json.loads(iterator.get_state())["cursor"] == [given]


class Bare:
    """A source without a `repr` of its own."""

    def __len__(self) -> int:
        return 17

    def __getitem__(self, index: int) -> int:
        return int(index)


def memory_mapped(folder: Path) -> Any:
    array = np.memmap(folder / "records", dtype=np.int64, mode="w+", shape=(17,))
    array[:] = range(17)
    return array


SOURCES: dict[str, Any] = {
    "range": lambda _: range(17),
    "list": lambda _: list(range(17)),
    "tuple": lambda _: tuple(range(17)),
    "array": lambda _: np.arange(17),
    "memory-mapped array": memory_mapped,
    "an object that shows its address": lambda _: Bare(),
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())
def test_the_source_is_recognised(make: Any, tmp_path: Path):
    state = grains_state(program_of(source=make(tmp_path)))
    program = program_of(source=make(tmp_path))

    assert_same(resume(program, state), stream(program(ours))[3:])


def test_the_state_is_gristmills_own_from_then_on():
    program = program_of(DRAW, batching(3))
    iterator = iter(program(ours))
    iterator.set_state(grains_state(program))
    state = iterator.get_state()

    assert "gristmill" in json.loads(state)
    assert_same(resume(program, state), stream(iterator))


def test_a_checkpoint_folder_that_grain_wrote_is_read(tmp_path: Path):
    program = program_of(batching(3))
    iterator = iter(program(oracle))
    next(iterator)
    handler: Any = grain.checkpoint.CheckpointHandler()
    handler.save(tmp_path, iterator)

    state = read_state(tmp_path, like=b"")

    assert_same(resume(program, state), stream(iterator))


# Of another loader


def assert_refused(program: Any, state: Any, message: str) -> None:
    """The state is refused, and the iterator continues where it was."""
    whole = stream(program(ours))
    iterator = iter(program(ours))
    iterator.start_prefetch()
    taken = stream(iterator, 2)
    before = iterator.get_state()
    with pytest.raises(StateError, match=message):
        iterator.set_state(state)
    assert iterator.get_state() == before
    assert_same(taken + stream(iterator), whole)


OTHERS = {
    "another seed": (program_of(seed=6), r"another sampler: .*seed=6\) there, .*seed=5\) here\."),
    "another order": (program_of(shuffle=False), r"another sampler: .*shuffle=False"),
    "another number of epochs": (program_of(num_epochs=1), r"another sampler: .*num_epochs=1"),
    "another source": (
        program_of(source=list(range(17))),
        r"another data source: <class 'list'> there, range\(0, 17\) here\..*`validate_state=False`",
    ),
    "a flat map": (program_of(SPLIT), r"^The state is from Grain's Dataset API"),
}


@pytest.mark.parametrize(("program", "message"), OTHERS.values(), ids=OTHERS.keys())
def test_a_state_of_another_loader_reports_what_differs(program: Any, message: str):
    assert_refused(program_of(), grains_state(program), message)


def test_a_state_without_the_flat_map_reports_that():
    assert_refused(program_of(SPLIT), grains_state(program_of()), r"0 FlatMap there, 1 here\.")
    assert_refused(
        program_of(SPLIT), grains_state(program_of(SPLIT, SPLIT)), r"2 FlatMap there, 1 here\."
    )


def test_a_state_of_another_shard_is_refused():
    def program(shard_index: int) -> Any:
        return lambda api: make_loader(
            api,
            range(17),
            sampler=api.IndexSampler(17, num_epochs=1, seed=0),
            shard_options=api.ShardOptions(shard_index, 3),
        )

    assert_refused(
        program(2), grains_state(program(1)), r"^The state belongs to another shard: .* 2 of 3\."
    )


def test_a_state_that_is_past_the_end_of_a_smaller_shard_is_refused():
    def program(api: Any) -> Any:
        shard = api.ShardOptions(1, 2, drop_remainder=False)  # two records of five
        sampler = api.IndexSampler(5, shard_options=shard, num_epochs=3)
        return make_loader(api, range(5), sampler=sampler)

    theirs, own = iter(program(oracle)), iter(program(ours))
    assert len(list(islice(theirs, 6))) == 6
    own.set_state(theirs.get_state())
    assert list(own) == []
    next(theirs)
    with pytest.raises(StateError, match=r"after 7 records of a shard that has 6 here"):
        own.set_state(theirs.get_state())


@pytest.mark.filterwarnings("ignore:.* gets no records")
def test_the_first_state_of_a_shard_without_records_is_its_end():
    def program(api: Any) -> Any:
        shard = api.ShardOptions(0, 2, drop_remainder=True)
        sampler = api.IndexSampler(1, shard_options=shard, shuffle=True, seed=1, num_epochs=1)
        return make_loader(api, range(1), sampler=sampler)

    own = iter(program(ours))
    own.set_state(iter(program(oracle)).get_state())
    assert list(own) == []


def test_a_state_that_is_not_validated_goes_on_within_the_bounds():
    state = grains_state(program_of(seed=6))
    other = program_of()(ours)
    iterator = gristmill.DataLoaderIterator(other, state, validate_state=False)
    assert stream(iterator) == stream(other)[3:]

    with pytest.raises(StateError, match=r"^The state is corrupt: its position is \(3,\)"):
        gristmill.DataLoaderIterator(
            gristmill.load(range(2), num_epochs=1), state, validate_state=False
        )


# Damaged


def grains_body() -> dict[str, Any]:
    return json.loads(grains_state(program_of()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"version": 1},
            r"^The state has version 1 of Grain's `DataLoader`, but this gristmill reads",
        ),
        ({"version": None}, r"^The state has version None of Grain's `DataLoader`"),
        ({"worker_count": "x"}, r"^The state is one of Grain's, and corrupt"),
        ({"last_seen_indices": {}}, r"^The state is one of Grain's, and corrupt"),
        ({"last_seen_indices": {"0": 3, "1": 4}}, r"^The state is one of Grain's, and corrupt"),
        ({"last_seen_indices": {"0": "3"}}, r"^The state is one of Grain's, and corrupt"),
        ({"last_seen_indices": {"0": -2}}, r"^The state is one of Grain's, and corrupt"),
        ({"last_seen_indices": {"0": 99}}, r"^The state is corrupt: its position is \(100,\)"),
        ({"sampler": 3}, r"^The state is one of Grain's, and corrupt"),
        ({"data_source": None}, r"^The state is one of Grain's, and corrupt"),
    ],
    ids=repr,
)
def test_a_damaged_state_is_reported(changes: dict[str, Any], message: str):
    assert_refused(program_of(), json.dumps({**grains_body(), **changes}).encode(), message)


def test_a_truncated_state_is_reported():
    state = grains_state(program_of())
    assert_refused(program_of(), state[: len(state) // 2], r"^The state is truncated")


@pytest.mark.parametrize(
    "nested",
    [
        {"parent": {"next_index": "3"}, "next_index_in_buffer": 1},
        {"parent": {"next_index": 3}, "next_index_in_buffer": None},
        {"parent": 3, "next_index_in_buffer": 1},
    ],
    ids=repr,
)
def test_a_damaged_state_of_a_flat_map_is_reported(nested: dict[str, Any]):
    assert_refused(program_of(SPLIT), nested, r"^The state is one of Grain's, and corrupt")


# With workers


@pytest.mark.parametrize("operations", [[batching(2)], [SPLIT]], ids=["batch", "flat map"])
def test_a_state_with_workers_reports_why_not_and_what_can_be_done(operations: Any):
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()  # Grain reads them before it starts workers
    loader = oracle.DataLoader(
        data_source=range(17),
        sampler=oracle.IndexSampler(17, shuffle=True, num_epochs=2, seed=5),
        operations=[make(oracle) for make in operations],
        worker_count=2,
    )
    assert_refused(
        program_of(*operations),
        iter(loader).get_state(),
        r"^The state is from Grain with 2 workers\. Each of them batched its own share .* "
        r"`worker_count=0` restores\. Finish the epoch with Grain",
    )


# Of the Dataset API


def test_a_state_of_the_dataset_api_is_refused_by_a_loader():
    state = iter(grain.MapDataset.range(20).to_iter_dataset()).get_state()
    assert_refused(program_of(), state, r"^The state is from Grain's Dataset API")
    assert_refused(
        program_of(), json.dumps(state).encode(), r"^The state is from Grain's Dataset API"
    )


def test_a_loaders_state_is_refused_by_a_dataset():
    iterator = iter(gristmill.MapDataset.range(20).to_iter_dataset())
    with pytest.raises(
        StateError, match=r"^The state is from Grain's `DataLoader`\. Restore it into"
    ):
        iterator.set_state(json.loads(grains_state(program_of())))


PLAIN: dict[str, Any] = {
    "map": lambda api: api.MapDataset.range(20).seed(1).shuffle().map(abs).to_iter_dataset(),
    "epochs": lambda api: api.MapDataset.range(20).seed(1).shuffle().repeat(2).to_iter_dataset(),
    "batches below": lambda api: api.MapDataset.range(20).batch(3).to_iter_dataset(),
    "batches above": lambda api: api.MapDataset.range(20).to_iter_dataset().batch(3),
    "batches of batches": lambda api: (
        api.MapDataset.range(24).to_iter_dataset().batch(3).map(abs).batch(2)
    ),
    "random map": lambda api: (
        api.MapDataset.range(20)
        .seed(1)
        .to_iter_dataset()
        .random_map(lambda x, rng: x + rng.random())
        .batch(3)
    ),
}


@pytest.mark.parametrize("make", PLAIN.values(), ids=PLAIN.keys())
@pytest.mark.parametrize("taken", [0, 1, 3])
def test_set_next_index_goes_where_grain_stood(make: Any, taken: int):
    theirs = iter(make(grain))
    stream(theirs, taken)
    iterator = iter(make(gristmill))

    gristmill.experimental.set_next_index(iterator, taken)

    assert_same(stream(iterator), stream(theirs))
