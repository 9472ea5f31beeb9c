"""States of Grain's dataset iterators: a run of Grain continues here with its elements."""

import json
from pathlib import Path
from typing import Any

import grain
import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from absl import flags
from hypothesis import given
from hypothesis import strategies as st

import gristmill
from gristmill.errors import StateError
from tests.cli.formats import tfrecord
from tests.compat.both_sides import (
    MAP_CHAINS,
    REFUSED,
    STEADY,
    assert_same,
    attempt,
    build_map,
    double,
    jitter,
    number,
    splitting,
    take,
)


def stream_of(api: Any, length: int = 20) -> Any:
    return api.MapDataset.range(length).seed(3).to_iter_dataset()


def documents(api: Any) -> Any:
    def document(index: int) -> Any:
        tokens = np.arange(1 + index * 7 % 5, dtype=np.int32) + 10 * index
        return {"x": tokens, "y": tokens[:2], "id": np.int32(index)}

    return api.MapDataset.range(23).map(document).to_iter_dataset()


def packed(api: Any, **options: Any) -> Any:
    return api.experimental.FirstFitPackIterDataset(
        documents(api),
        length_struct={"x": 6, "y": 6},
        num_packing_bins=3,
        seed=4,
        **options,
    )


def concatenated(api: Any, **options: Any) -> Any:
    stream = documents(api).map(lambda element: {name: element[name] for name in "xy"})
    return api.experimental.ConcatThenSplitIterDataset(
        stream, length_struct={"x": 5, "y": 3}, **options
    )


def users_stream(api: Any) -> Any:
    class Numbered(api.DatasetIterator):
        def __init__(self, parent: Any) -> None:
            super().__init__(parent)
            self._count = 0

        def __next__(self) -> Any:
            self._count += 1
            return next(self._parent) * 100 + self._count

        def get_state(self) -> dict[str, Any]:
            return {"below": self._parent.get_state(), "count": self._count}

        def set_state(self, state: dict[str, Any]) -> None:
            self._parent.set_state(state["below"])
            self._count = state["count"]

    class NumberedStream(api.IterDataset):
        def __iter__(self) -> Any:
            return Numbered(iter(self._parent))

    return NumberedStream(stream_of(api, 7).filter(lambda x: x % 3))


def cached_twice(api: Any) -> Any:
    cached = api.experimental.CacheIterDataset(stream_of(api, 7).filter(lambda x: x % 3))
    return api.experimental.RepeatIterDataset(cached, num_epochs=3)


PIPELINES: dict[str, Any] = {
    "a map dataset": lambda api: api.MapDataset.range(9).map(double),
    "shuffle, batch and repeat": lambda api: (
        api.MapDataset.range(9).shuffle(seed=2).batch(2).repeat(3)
    ),
    "a filter in the dataset": lambda api: api.MapDataset.range(9).filter(lambda x: x % 3),
    "absent elements": lambda api: (
        api.MapDataset.range(9).filter(lambda x: x % 3).to_iter_dataset(allow_nones=True)
    ),
    "a mix of datasets": lambda api: api.MapDataset.mix(
        [api.MapDataset.range(5), api.MapDataset.range(10, 30)], weights=[1, 2]
    ),
    "map, filter and batch": lambda api: (
        stream_of(api).map(double).filter(lambda x: x % 3).batch(2)
    ),
    "whole batches": lambda api: stream_of(api).batch(3, drop_remainder=True),
    "batches of batches": lambda api: stream_of(api).batch(2).batch(3),
    "random map": lambda api: stream_of(api).filter(lambda x: x % 3).random_map(jitter),
    "map with index": lambda api: stream_of(api).filter(lambda x: x % 3).map_with_index(number),
    "flat map": lambda api: api.experimental.FlatMapIterDataset(
        stream_of(api, 9), splitting(api, 3)
    ),
    "a flat map between filters": lambda api: (
        api.experimental.FlatMapIterDataset(
            stream_of(api, 15).filter(lambda x: x % 3), splitting(api, 3)
        )
        .filter(lambda x: x % 2)
        .batch(2)
    ),
    "two flat maps": lambda api: api.experimental.FlatMapIterDataset(
        api.experimental.FlatMapIterDataset(stream_of(api, 9), splitting(api, 2)),
        splitting(api, 3),
    ),
    "limit": lambda api: api.experimental.LimitIterDataset(
        stream_of(api).filter(lambda x: x % 3), count=7
    ),
    "a limit past the end": lambda api: api.experimental.LimitIterDataset(
        stream_of(api, 5), count=9
    ),
    "repeat": lambda api: api.experimental.RepeatIterDataset(
        stream_of(api, 5).batch(2), num_epochs=3
    ),
    "repeat without end": lambda api: api.experimental.LimitIterDataset(
        api.experimental.RepeatIterDataset(stream_of(api, 4)), count=11
    ),
    "cache": lambda api: api.experimental.CacheIterDataset(stream_of(api, 6)),
    "a cache that is repeated": cached_twice,
    "window shuffle": lambda api: api.experimental.WindowShuffleIterDataset(
        stream_of(api, 11).filter(lambda x: x % 5), window_size=4, seed=1
    ),
    "windows that end with the stream": lambda api: api.experimental.WindowShuffleIterDataset(
        stream_of(api, 8), window_size=4, seed=1
    ),
    "windows that are repeated": lambda api: api.experimental.RepeatIterDataset(
        api.experimental.WindowShuffleIterDataset(stream_of(api, 6), window_size=4, seed=1),
        num_epochs=2,
    ),
    "rebatch": lambda api: api.experimental.RebatchIterDataset(
        stream_of(api, 17).batch(4), batch_size=3
    ),
    "rebatch to larger ones": lambda api: api.experimental.RebatchIterDataset(
        stream_of(api, 17).batch(3), batch_size=5, drop_remainder=True
    ),
    "mix": lambda api: api.IterDataset.mix(
        [stream_of(api, 9).map(double), stream_of(api, 30).filter(lambda x: x % 3)], [1, 2]
    ),
    "a mix with names": lambda api: api.IterDataset.mix(
        {"b": stream_of(api, 9).map(double), "a": stream_of(api, 30)}, {"b": 1, "a": 2}
    ),
    "zip": lambda api: api.experimental.ZipIterDataset(
        [stream_of(api, 9).map(double), stream_of(api, 30).filter(lambda x: x % 3)], strict=False
    ),
    "interleave": lambda api: api.experimental.InterleaveIterDataset(
        [api.MapDataset.range(10 * n, 10 * n + n).to_iter_dataset() for n in (3, 1, 4, 2, 5)],
        cycle_length=2,
    ),
    "interleave of map datasets": lambda api: api.experimental.InterleaveIterDataset(
        [api.MapDataset.range(10 * n, 10 * n + n) for n in (0, 3, 1, 4, 2)], cycle_length=3
    ),
    "interleave of one": lambda api: api.experimental.InterleaveIterDataset(
        [stream_of(api, 6)], cycle_length=4
    ),
    "first-fit packing": packed,
    "first-fit packing in order": lambda api: packed(api, shuffle_bins=False),
    "packing of some features": lambda api: packed(api, meta_features=("id",)),
    "best-fit packing": lambda api: api.experimental.BestFitPackIterDataset(
        documents(api), length_struct={"x": 6, "y": 6}, num_packing_bins=2
    ),
    "concatenated and split": concatenated,
    "with rows that are kept whole": lambda api: concatenated(
        api, split_full_length_features=False
    ),
    "prefetch in a thread": lambda api: api.experimental.ThreadPrefetchIterDataset(
        stream_of(api).batch(3), prefetch_buffer_size=2
    ),
    "options": lambda api: api.experimental.WithOptionsIterDataset(
        stream_of(api).batch(3),
        api.experimental.DatasetOptions(filter_warn_threshold_ratio=None),
    ),
    "a user's own stream": users_stream,
    "steps above a user's own stream": lambda api: users_stream(api).map(double).batch(3),
    "a tower": lambda api: api.experimental.RepeatIterDataset(
        api.experimental.WindowShuffleIterDataset(
            api.IterDataset.mix([packed(api), packed(api, shuffle_bins=False)]),
            window_size=3,
            seed=2,
        ),
        num_epochs=2,
    ).batch(2),
}


def is_same(one: Any, other: Any) -> bool:
    try:
        assert_same(one, other)
    except AssertionError:
        return False
    return True


def run_grain(make: Any) -> tuple[list[Any], list[str]]:
    """All elements, and as JSON the states before the first, after each, and after the end."""
    iterator = iter(make(grain))
    elements, states = [], [json.dumps(iterator.get_state())]
    for element in iterator:
        elements.append(element)
        states.append(json.dumps(iterator.get_state()))
    return elements, [*states, json.dumps(iterator.get_state())]


def assert_goes_on(make: Any) -> None:
    """Each state of Grain brings ours to the rest of Grain's elements; so does ours from then."""
    elements, states = run_grain(make)
    dataset = make(gristmill)

    assert elements
    for count, state in enumerate(states):
        iterator = iter(dataset)
        iterator.set_state(json.loads(state))
        own = iterator.get_state()
        assert_same(take(iterator), elements[count:], f"after {count} elements")

        again = iter(dataset)
        again.set_state(json.loads(json.dumps(own)))
        assert_same(take(again), elements[count:], f"after {count} elements, by our own state")


@pytest.mark.parametrize("make", PIPELINES.values(), ids=PIPELINES.keys())
def test_every_state_of_grains_iterator_goes_on_with_grains_elements(make: Any):
    assert_goes_on(make)


def assert_refused(dataset: Any, state: Any, message: str) -> None:
    """The state is refused, and the iterator continues where it was."""
    with iter(dataset) as iterator:
        before = iterator.get_state()
        with pytest.raises(StateError, match=message):
            iterator.set_state(state)
        assert iterator.get_state() == before


@STEADY
@given(chain=MAP_CHAINS, count=st.integers(0, 9))
def test_a_state_of_any_map_dataset_goes_on(chain: Any, count: int):
    ours, theirs = (
        attempt(lambda api=api: iter(build_map(api, *chain))) for api in (gristmill, grain)
    )
    hypothesis.assume(REFUSED not in (ours, theirs))
    own = take(ours)
    hypothesis.assume(is_same(take(theirs), own) and all(one is not REFUSED for one in own))
    theirs = iter(build_map(grain, *chain))
    take(theirs, count)
    iterator = iter(build_map(gristmill, *chain))
    iterator.set_state(theirs.get_state())

    assert_same(take(iterator), own[count:])


def test_integers_that_orbax_restored_as_arrays_are_taken():
    iterator = iter(stream_of(gristmill).map_with_index(number))
    iterator.set_state({"parent": {"next_index": np.array(4)}, "counter": np.int64(4)})

    assert next(iterator) == 4 * 3 + 4


def test_the_records_of_a_file_go_on_where_grain_stood(tmp_path: Path):
    path = tfrecord(tmp_path)

    assert_goes_on(lambda api: api.experimental.TFRecordIterDataset(path))


def test_the_rows_of_parquet_files_go_on_where_grain_stood(tmp_path: Path):
    paths = [str(tmp_path / name) for name in ("one.parquet", "two.parquet")]
    for first, path in enumerate(paths):
        pq.write_table(pa.table({"x": range(first * 10, first * 10 + 5)}), path, row_group_size=2)

    assert_goes_on(lambda api: api.experimental.ParquetIterDataset(paths[0]))
    assert_goes_on(lambda api: api.experimental.ParquetIterDataset(paths))


# With workers


def with_workers(make: Any, num_workers: int) -> Any:
    return lambda api: make(api).mp_prefetch(
        api.MultiprocessingOptions(num_workers=num_workers, per_worker_buffer_size=1)
    )


@pytest.mark.parametrize(
    ("num_workers", "make"),
    [
        (1, lambda api: stream_of(api, 9).filter(lambda x: x % 3).batch(2)),
        (2, lambda api: api.MapDataset.range(11).shuffle(seed=1).batch(2).to_iter_dataset()),
    ],
    ids=["one that filters and batches", "two that read batches of a dataset"],
)
def test_a_state_with_workers_goes_on_where_the_stream_is_the_same(num_workers: int, make: Any):
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()  # Grain reads them before it starts workers
    elements, states = run_grain(with_workers(make, num_workers))
    own = with_workers(make, num_workers)(gristmill)

    for count, state in enumerate(states[:-1]):
        with iter(own) as iterator:
            iterator.set_state(json.loads(state))
            rest = [np.asarray(element) for element in elements[count:]]
            assert_same(take(iterator), rest, f"after {count} elements")


def test_a_state_of_workers_that_batched_their_own_shares_is_refused():
    make = with_workers(lambda api: stream_of(api).batch(2), 2)

    assert_refused(
        make(gristmill),
        iter(make(grain)).get_state(),
        r"^The state is from Grain with 2 workers\. Each of them filtered, batched or packed .* "
        r"Finish the epoch with Grain",
    )


def test_a_state_of_another_number_of_workers_is_refused():
    state = iter(with_workers(stream_of, 2)(grain)).get_state()

    assert_refused(
        with_workers(stream_of, 3)(gristmill), state, r"Workers\(3\): it is of 2 workers"
    )


# Of another pipeline


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda api: stream_of(api).random_map(jitter), r"MapWithIndex number: it has the fields"),
        (lambda api: stream_of(api), r"MapWithIndex number: it has the fields `next_index`\."),
        (
            lambda api: stream_of(api, 90).map_with_index(number),
            r"`next_index` 50 is out of range for dataset of length 20",
        ),
    ],
    ids=["another step", "no step", "a longer dataset"],
)
def test_a_state_of_another_pipeline_names_the_step_that_differs(other: Any, message: str):
    theirs = iter(other(grain))
    state = (take(theirs, 50), theirs.get_state())[1]
    own = stream_of(gristmill).map_with_index(number)

    other = "The state is from Grain's Dataset API, and is not one of .*"
    assert_refused(own, state, rf"^({other}|Checkpoint ){message}")


@pytest.mark.parametrize(
    "state",
    [
        {"parent": {"next_index": -1}, "counter": 1},
        {"parent": {"next_index": True}, "counter": 1},
        {"parent": {"next_index": 1}, "counter": "1"},
        {"parent": 3, "counter": 1},
        {"parent": {"next_index": 1}},
    ],
    ids=repr,
)
def test_a_damaged_state_is_refused(state: Any):
    own = stream_of(gristmill).map_with_index(number)

    other = "The state is from Grain's Dataset API, and is not one of"
    assert_refused(own, state, rf"^({other}|Checkpoint `next_index` -1 is out of range)")


def test_a_state_of_interleaved_datasets_that_seem_to_have_ended_is_refused():
    def repeated(api: Any) -> Any:
        datasets = [api.MapDataset.range(5), api.MapDataset.range(10, 13)]
        interleaved = api.experimental.InterleaveIterDataset(datasets, cycle_length=2)
        return api.experimental.RepeatIterDataset(interleaved, num_epochs=2)

    _, states = run_grain(repeated)
    elements = list(repeated(gristmill))
    for count in range(8):
        iterator = iter(repeated(gristmill))
        iterator.set_state(json.loads(states[count]))
        assert take(iterator) == elements[count:]
    assert_refused(
        repeated(gristmill), json.loads(states[9]), r"in a repeated epoch\. Datasets that ended in"
    )


def test_a_mix_of_other_datasets_is_refused():
    def mixed(api: Any, count: int) -> Any:
        return api.IterDataset.mix([stream_of(api)] * count)

    assert_refused(
        mixed(gristmill, 2), iter(mixed(grain, 3)).get_state(), "it is of 3 datasets, these are 2"
    )


def test_a_mix_with_names_goes_on_with_a_dataset_more():
    def mixed(api: Any, names: str) -> Any:
        return api.IterDataset.mix({name: stream_of(api) for name in names})

    theirs = iter(mixed(grain, "ab"))
    take(theirs, 6)
    iterator = iter(mixed(gristmill, "abc"))
    iterator.set_state(theirs.get_state())

    assert take(iterator, 3) == [3, 3, 0]


def test_a_state_within_an_epoch_that_grain_shuffles_otherwise_is_refused():
    def shuffled(api: Any) -> Any:
        return api.MapDataset.range(65_537).shuffle(seed=1).to_iter_dataset()

    theirs = iter(shuffled(grain))
    iterator = iter(shuffled(gristmill))
    iterator.set_state(theirs.get_state())
    next(theirs)
    with pytest.raises(StateError, match=r"Grain's shuffle of 65537 elements yields one of them"):
        iterator.set_state(theirs.get_state())
