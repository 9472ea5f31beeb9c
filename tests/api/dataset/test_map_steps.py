"""Batches of unequal elements of a dataset with random access, planned from lengths."""

import json
import pickle
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as grain
from gristmill.checkpoint import gather_states
from gristmill.errors import BatchError, PlanError, PlanTypeError
from gristmill.transforms import PadBatch
from tests.equivalence.executors import by_value, exact

by_value(__name__)

COUNT = 83
LENGTHS = np.random.default_rng(1).integers(1, 17, COUNT)


class Documents:
    """A source that counts how often each record is read."""

    def __init__(self) -> None:
        self.reads = np.zeros(COUNT, int)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.reads[index] += 1
        return {"tokens": np.full(LENGTHS[index], index + 1), "id": index}


def documents() -> grain.MapDataset[Any]:
    return grain.MapDataset.source(Documents()).shuffle(seed=3)


def batches(ds: grain.MapDataset[Any], **options: Any) -> grain.MapDataset[Any]:
    arguments: dict[str, Any] = {"lengths": LENGTHS, "batch_sizes": [6, 4, 2], "length": "tokens"}
    return ds.bucket_by_length([4, 8, 16], **{**arguments, **options})


@pytest.mark.parametrize("remainder", ["keep", "drop"])
def test_planned_batches_are_those_of_a_stream(remainder: Any):
    planned = batches(documents(), remainder=remainder)
    streamed = documents().to_iter_dataset()
    streamed = streamed.bucket_by_length(
        [4, 8, 16], batch_sizes=[6, 4, 2], length="tokens", remainder=remainder
    )

    assert list(map(exact, planned)) == list(map(exact, streamed))
    assert len(planned) == len(list(streamed))


def test_there_is_one_shape_for_each_bucket():
    planned = batches(documents(), remainder="pad", pad=PadBatch(add_mask=True))
    assert {batch["tokens"].shape for batch in planned} == {(6, 4), (4, 8), (2, 16)}


def test_no_record_is_read_twice_and_planning_reads_none():
    source = Documents()
    planned = batches(grain.MapDataset.source(source).shuffle(seed=3))
    assert len(planned) > 10
    assert source.reads.sum() == 0

    list(planned)
    assert (source.reads == 1).all()


def test_each_epoch_has_each_record_once_in_another_order():
    planned = batches(documents()).repeat(3)
    seen = [[int(n) for n in batch["id"]] for batch in planned]
    length = len(seen) // 3

    epochs = [[*chain(*seen[epoch * length :][:length])] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_batch_is_found_by_its_index_in_any_epoch():
    planned = batches(documents())
    in_order = [exact(batch) for batch in planned.repeat(2)]
    assert [exact(planned[index]) for index in reversed(range(2 * len(planned)))] == in_order[::-1]
    assert exact(pickle.loads(pickle.dumps(planned))[3]) == in_order[3]


def test_a_token_budget_is_never_exceeded():
    planned = documents().bucket_by_length(
        [4, 8, 16], lengths=LENGTHS, max_tokens=40, length="tokens"
    )
    assert {batch["tokens"].shape[1] for batch in planned} == {4, 8, 16}
    assert max(batch["tokens"].size for batch in planned) <= 40


@pytest.mark.parametrize("remainder", ["pad", "drop"])
@pytest.mark.parametrize("num_processes", [2, 3, 6])
def test_all_processes_take_the_same_bucket_at_the_same_step(remainder: Any, num_processes: int):
    planned = batches(
        documents(), remainder=remainder, pad=PadBatch(add_lengths=True), group_size=6
    )
    shards = [list(planned[process::num_processes]) for process in range(num_processes)]

    for step in zip(*shards, strict=True):  # they also end together
        assert len({batch["tokens"].shape for batch in step}) == 1
    rows = [
        int(number)
        for shard in shards
        for batch in shard
        for number in batch["id"][batch["tokens_length"] > 0]
    ]
    assert len(set(rows)) == len(rows)
    if remainder == "pad":
        assert sorted(rows) == list(range(COUNT))


@given(counts=st.lists(st.sampled_from([1, 2, 4]), min_size=2, max_size=3), data=st.data())
@settings(deadline=None, max_examples=15)
def test_a_run_on_some_processes_continues_on_others_with_equal_shapes(
    counts: list[int], data: st.DataObject
):
    def shard(process: int, count: int) -> Any:
        planned = batches(documents(), remainder="pad", pad=PadBatch(add_mask=True), group_size=4)
        return iter(planned[process::count].to_iter_dataset())

    whole = list(batches(documents(), remainder="pad", pad=PadBatch(add_mask=True), group_size=4))
    seen: list[Any] = []
    states: Any = None
    for number, count in enumerate(counts):
        iterators = [shard(process, count) for process in range(count)]
        for iterator in iterators:
            if states is not None:
                iterator.set_state(states)
        is_last = number + 1 == len(counts)
        # Up to a multiple of the group, from where any number of processes divides it.
        num_steps = len(whole) if is_last else data.draw(st.integers(0, 3)) * 4 // count
        for _ in range(num_steps):
            step = [batch for iterator in iterators if (batch := next(iterator, None)) is not None]
            assert len({batch["tokens"].shape for batch in step}) <= 1
            seen += step
        states = gather_states([iterator.get_state() for iterator in iterators])

    assert list(map(exact, seen)) == list(map(exact, whole))


def test_workers_compute_the_same_batches_and_states():
    stream = batches(documents()).to_iter_dataset()
    expected = list(map(exact, stream))
    with iter(stream.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))) as iterator:
        first = [exact(next(iterator)) for _ in range(5)]
        state = json.loads(json.dumps(iterator.get_state()))
        assert first + list(map(exact, iterator)) == expected
        assert iterator.stats().padding_share > 0.1
    other = iter(stream)
    other.set_state(state)
    assert list(map(exact, other)) == expected[5:]


def test_records_that_are_too_long_are_dropped_on_request_only():
    options: dict[str, Any] = {"lengths": LENGTHS, "batch_sizes": 4, "length": "tokens"}
    with pytest.raises(PlanError, match=r"An element has length 16, but the last boundary is 8"):
        documents().bucket_by_length([4, 8], **options)

    kept = documents().bucket_by_length([4, 8], **options, drop_longer=True)
    rows = [int(number) for batch in kept for number in batch["id"]]
    assert sorted(rows) == np.flatnonzero(LENGTHS <= 8).tolist()


def test_a_record_that_is_longer_than_its_length_claims_is_an_error_that_names_the_batch():
    wrong = np.minimum(LENGTHS, 4)
    planned = documents().bucket_by_length([4], lengths=wrong, batch_sizes=4, length="tokens")
    with pytest.raises(BatchError, match=r'batch\["tokens"\]: an array has length') as caught:
        list(planned)
    assert "BucketByLength([4], batch_sizes=[4])" in caught.value.__notes__[0]


def test_lengths_are_those_of_the_source_whatever_is_between():
    ds = grain.MapDataset.source(Documents())[10:70].shuffle(seed=1).map(lambda x: x)
    planned = batches(ds.seed(2).random_map(lambda x, rng: x))
    assert sorted(int(n) for batch in planned for n in batch["id"]) == list(range(10, 70))


def test_lengths_are_those_of_the_source_also_above_a_cache():
    ds = grain.MapDataset.source(Documents())
    plain, cached = (batches(made.shuffle(seed=1)) for made in (ds, ds.cache()))
    assert list(map(exact, cached)) == list(map(exact, plain))


@pytest.mark.filterwarnings("ignore:A slice of a shuffled dataset")
def test_epochs_of_other_records_are_refused():
    planned = batches(documents()[:20]).repeat(5)
    with pytest.raises(PlanError, match=r"the epochs do not contain the same records"):
        list(planned)


def test_an_empty_dataset_has_no_batches():
    assert list(grain.MapDataset.range(0).bucket_by_length([4], lengths=[], batch_sizes=2)) == []


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda ds: batches(ds.repeat()), PlanError, "infinite. Call `repeat` after it"),
        (lambda ds: batches(ds, lengths=[1, 2]), PlanError, "`lengths` has 2 numbers"),
        (lambda ds: batches(ds, lengths=LENGTHS / 2), PlanTypeError, "array of integers"),
        (lambda ds: batches(ds, lengths=-LENGTHS), PlanError, "`lengths` must not be negative"),
        (lambda ds: batches(ds, group_size=2), PlanError, 'but `remainder="keep"` makes smaller'),
        (lambda ds: batches(ds, group_size=0), PlanError, "`group_size` must be at least 1"),
        (lambda ds: batches(ds.filter(bool)), PlanError, "can not follow `MapDataset.filter`"),
        (lambda ds: ds.filter(bool).pad_batch(2), PlanError, "`MapDataset.pad_batch` can not"),
        (lambda ds: batches(ds + ds), PlanError, "does not yield one element for each record"),
        (lambda ds: batches(ds.batch(2)), PlanError, "does not yield one element for each record"),
        (lambda ds: ds.unbatch(), PlanError, "The number of rows of the elements .* is not known"),
        (lambda ds: ds.take(-1), PlanError, "`count` must be at least 0"),
        (lambda ds: ds.skip(1.5), PlanTypeError, "`count` must be an integer"),
        (lambda ds: ds + {1: 2}, PlanTypeError, "`\\+` concatenates two datasets, got dict"),
        (lambda ds: ds + ds.to_iter_dataset(), PlanTypeError, "Call `to_iter_dataset\\(\\)` on"),
        (lambda ds: grain.MapDataset.concatenate(ds), PlanTypeError, "takes a list of datasets"),
    ],
)
def test_what_cannot_work_is_an_error_with_a_way_out(make: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        make(documents())


def test_unbatch_numbers_the_rows_of_full_batches():
    ds = grain.MapDataset.range(7).batch(3).unbatch()
    assert len(ds) == 9
    assert [None if row is None else int(row) for row in (ds[i] for i in range(9))] == [
        *range(7),
        None,
        None,
    ]
    assert [batch.tolist() for batch in ds.to_iter_dataset().batch(4)] == [[0, 1, 2, 3], [4, 5, 6]]


def test_take_skip_enumerate_and_sums():
    ds = grain.MapDataset.range(5)
    assert list(ds.take(2) + ds.skip(3)) == [0, 1, 3, 4]
    assert list(ds.take(99)) == list(ds)
    assert list(ds.take(0)) == list(ds.skip(5)) == []
    assert list(ds.filter(lambda x: x % 2).enumerate(10)) == [(11, 1), (13, 3)]
    assert (ds + ds)[5 + 2] == 2
