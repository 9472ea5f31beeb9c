"""`ElasticIterator`: Grain's elements and resizing where Grain has it, and beyond its limits."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.checkpoint import gather_states
from gristmill.errors import ClosedError, PlanError, StateError
from tests.compat.both_sides import SIDES, ours

STEADY = settings(max_examples=60, deadline=None, derandomize=True, database=None)
WORKERS = ours.MultiprocessingOptions(num_workers=2)


def plain(api: Any, count: int) -> Any:
    return api.MapDataset.range(count).shuffle(seed=1).map(lambda x: x + 1)


def elastic(api: Any, ds: Any, size: int, shard: int, count: int, **options: Any) -> Any:
    options_of_shard = api.sharding.ShardOptions(shard, count)
    return api.experimental.ElasticIterator(ds, size, options_of_shard, **options)


def taken(iterator: Any, count: int | None = None) -> list[list[int]]:
    steps = range(10**6 if count is None else count)
    return [batch.tolist() for _, batch in zip(steps, iterator, strict=False)]


@pytest.mark.filterwarnings("ignore:There will be no batch")
@STEADY
@given(
    records=st.integers(1, 60),
    old=st.integers(1, 4),
    new=st.integers(1, 4),
    steps=st.integers(0, 5),
    draw=st.data(),
)
def test_it_is_grains_before_and_after_a_resize(
    records: int, old: int, new: int, steps: int, draw: st.DataObject
):
    sizes = [count * draw.draw(st.integers(1, 3)) for count in (old, new)]
    steps = min(steps, records // sizes[0])
    runs: list[Any] = []
    for api in SIDES:
        before = [
            iter(elastic(api, plain(api, records), sizes[0], shard, old)) for shard in range(old)
        ]
        first = [taken(iterator, steps) for iterator in before]
        after = [elastic(api, plain(api, records), sizes[1], shard, new) for shard in range(new)]
        for iterator in after:
            iterator.set_state(before[-1].get_state())
        runs.append((first, [taken(iter(iterator)) for iterator in after]))
    assert runs[1] == runs[0]


def test_a_state_of_grains_is_taken():
    theirs, mine = (elastic(api, plain(api, 24), 4, 1, 2) for api in SIDES)
    next(theirs)
    mine.set_state(theirs.get_state())
    assert taken(iter(mine)) == taken(iter(theirs))
    for wrong in (-1, 1.5, "8", None):
        with pytest.raises(StateError, match="corrupt: its position is"):
            mine.set_state({"global_next_index": wrong})


def test_it_is_one_iterator_as_in_grain():
    ds = elastic(ours, plain(ours, 24), 4, 0, 2)
    assert iter(ds) is iter(ds)
    first = next(ds).tolist()
    state = ds.get_state()
    rest = taken(iter(ds))
    ds.set_state(state)
    assert [first, *taken(iter(ds))] == [first, *rest]
    ds.close()


def filtered(count: int) -> Any:
    return ours.MapDataset.range(count).shuffle(seed=2).filter(lambda x: x % 3 != 0)


def mixed(count: int) -> Any:
    return ours.MapDataset.mix(
        [ours.MapDataset.range(count), ours.MapDataset.range(1000, 1000 + count)], [2, 1]
    )


def mixed_streams(count: int) -> Any:
    parts = [ours.MapDataset.range(first, first + count) for first in (0, 1000)]
    return ours.IterDataset.mix([part.to_iter_dataset() for part in parts])


def packed(count: int) -> Any:
    ds = ours.MapDataset.range(1, count).map(lambda x: {"t": np.full(1 + x % 6, x)})
    ds = ours.experimental.FirstFitPackIterDataset(
        ds.to_iter_dataset(), length_struct={"t": 8}, num_packing_bins=3
    )
    return ds.map(lambda row: row["t"])


@pytest.mark.parametrize("workers", [None, WORKERS], ids=["inline", "2 workers"])
@pytest.mark.parametrize("make", [filtered, mixed, mixed_streams, packed])
def test_beyond_grains_limits_no_record_comes_twice_and_few_are_left_over(make: Any, workers: Any):
    before = [elastic(ours, make(60), 6, shard, 3) for shard in range(3)]
    seen = [taken(iter(iterator), 2) for iterator in before]
    state = gather_states([iterator.get_state() for iterator in before])
    for shard in range(2):
        ds = elastic(ours, make(60), 6, shard, 2, multiprocessing_options=workers)
        with iter(ds) as iterator:
            iterator.set_state(state)
            seen.append(taken(iterator))
    batches = [batch for part in seen for batch in part]
    records = [record for batch in batches for record in np.ravel(batch).tolist() if record]
    everything = list(elastic(ours, make(60), 1, 0, 1))
    wanted = [record for batch in everything for record in np.ravel(batch).tolist() if record]
    if make is packed:  # each document is whole
        assert {records.count(x) == wanted.count(x) for x in records} == {True}
    else:
        assert len(records) == len(set(records))
    assert {*records} <= {*wanted}
    # Each of 2 shards leaves out less than a batch; a mix ends with the first that has none left.
    left_out = len({*wanted} - {*records})
    assert left_out <= (32 if make is packed else 2 * 3 + (6 if "mixed" in make.__name__ else 0))


def test_what_does_not_fit_is_reported():
    with pytest.raises(PlanError, match="must be a multiple of the number of shards, 2, got 5"):
        elastic(ours, plain(ours, 24), 5, 0, 2)
    with pytest.raises(PlanError, match="is a shard already"):
        elastic(ours, plain(ours, 24)[0::2], 4, 0, 2)
    one, other = (elastic(ours, filtered(30), 4, shard, 2) for shard in range(2))
    with pytest.raises(StateError, match="0 of 2 there, 1 of 2 here"):
        other.set_state(one.get_state())
    with pytest.raises(StateError, match="another source"):
        elastic(ours, plain(ours, 30), 4, 0, 2).set_state(
            elastic(ours, plain(ours, 24), 4, 0, 2).get_state()
        )


# As in Grain's head


def stream(count: int) -> Any:
    return ours.MapDataset.range(count).to_iter_dataset().filter(lambda x: x % 3)


def test_a_stream_keeps_its_smaller_last_batch():
    assert taken(elastic(ours, stream(12), 6, 0, 2)) == [[2, 4, 8], [10]]
    assert taken(elastic(ours, stream(12), 6, 1, 2)) == [[1, 5, 7], [11]]


def test_a_stream_without_a_batch_size_is_not_batched():
    assert list(elastic(ours, stream(12), 0, 1, 2)) == [1, 5, 7, 11]
    with pytest.raises(PlanError, match=r"^`global_batch_size` must be at least 1, got 0\."):
        elastic(ours, plain(ours, 12), 0, 0, 1)


@pytest.mark.parametrize("num_shards", [1, 2])
@pytest.mark.parametrize("is_at_state", [True, False])
def test_it_continues_after_close_once_a_state_is_set(num_shards: int, is_at_state: bool):
    for api in SIDES:
        iterator = elastic(api, plain(api, 12), 4, 0, num_shards)
        next(iterator)
        state = iterator.get_state()
        second = next(iterator)
        if is_at_state:
            iterator.set_state(state)
        iterator.close()
        iterator.set_state(state)
        assert next(iterator).tolist() == second.tolist()


@pytest.mark.parametrize("num_shards", [1, 2])
def test_it_continues_over_a_stream_after_close_once_a_state_is_set(num_shards: int):
    iterator = elastic(ours, stream(12), 4, 0, num_shards)
    next(iterator)
    state, second = iterator.get_state(), next(iterator)
    iterator.close()
    iterator.set_state(state)
    assert next(iterator).tolist() == second.tolist()


def test_it_stays_closed_after_a_state_that_does_not_fit():
    iterator = elastic(ours, plain(ours, 12), 4, 0, 1)
    next(iterator)
    state = iterator.get_state()
    iterator.close()
    with pytest.raises(StateError):
        iterator.set_state({"global_next_index": -1})
    assert iterator.get_state() == state
    with pytest.raises(ClosedError, match=r"Make a new one from the loader or dataset\.$"):
        next(iterator)


def test_a_closed_one_that_was_never_used_yields_nothing():
    iterator = elastic(ours, plain(ours, 12), 4, 0, 1)
    iterator.close()
    with pytest.raises(ClosedError):
        next(iterator)


def test_other_iterators_stay_closed_also_if_the_number_of_shards_changes():
    before = elastic(ours, plain(ours, 12), 4, 0, 1)
    next(before)
    iterator = iter(elastic(ours, plain(ours, 12), 4, 0, 2))
    iterator.close()
    iterator.set_state(before.get_state())
    with pytest.raises(ClosedError):
        next(iterator)


def test_the_states_of_the_shards_of_a_stream_restore_one_and_all():
    shards = [elastic(ours, stream(24), 0, shard, 2) for shard in range(2)]
    for shard in shards:
        next(shard)
    states = {**shards[0].get_shard_states(), **shards[1].get_shard_states()}
    assert sorted(states) == [0, 1]
    rest = sorted(element for shard in shards for element in list(shard))

    same = elastic(ours, stream(24), 0, 1, 2)
    same.set_shard_states({"1": states[1]})
    assert list(same) == [5, 7, 11, 13, 17, 19, 23]
    three = [elastic(ours, stream(24), 0, shard, 3) for shard in range(3)]
    for shard in three:
        shard.set_shard_states(states)
    assert sorted(element for shard in three for element in list(shard)) == rest


def test_the_shards_of_a_map_dataset_have_one_state():
    iterator = elastic(ours, plain(ours, 12), 4, 0, 2)
    with pytest.raises(NotImplementedError, match="get_shard_states is only supported"):
        iterator.get_shard_states()
    with pytest.raises(NotImplementedError, match="set_shard_states is only supported"):
        iterator.set_shard_states({})


def test_a_stream_that_cannot_be_cut_is_refused_by_name():
    parts = [ours.MapDataset.range(3).to_iter_dataset()] * 2
    interleaved = ours.experimental.InterleaveIterDataset(parts, cycle_length=2)
    message = r"^`Interleave\(2 datasets, .*cannot be distributed over shards"
    with pytest.raises(PlanError, match=message):
        elastic(ours, interleaved.map(lambda x: x), 2, 0, 2)
    assert taken(elastic(ours, interleaved, 2, 0, 1)) == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda ds: ds.skip(6), r"`Skip\(6\)`.*: each shard would skip 6 elements"),
        (lambda ds: ds.take(6), r"`Limit\(6\)`.*: each shard would yield 6 elements"),
        (
            lambda ds: ours.experimental.ZipIterDataset([ds.filter(bool), ds], strict=False),
            r"`Zip\(2 datasets\)`.*: the elements of each shard would be in other tuples",
        ),
    ],
    ids=["skip", "take", "zip"],
)
def test_a_step_that_needs_the_whole_stream_is_refused_by_name(change: Any, problem: str):
    stream = change(ours.MapDataset.range(12).to_iter_dataset())
    with pytest.raises(PlanError, match=problem):
        elastic(ours, stream, 4, 0, 2)
    assert taken(elastic(ours, stream, 0, 0, 1).map(np.asarray))


def test_it_knows_its_shard():
    assert elastic(ours, plain(ours, 12), 4, 1, 2).shard_options.shard_index == 1
