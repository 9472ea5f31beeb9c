"""Users' own streams with `set_slice` under `mp_prefetch`: a worker per slice, in Grain's order."""

import json
import os
from typing import Any

import grain
import pytest

import gristmill as gm
from gristmill.errors import StateError
from tests.engine.stateful.user_streams.delegating import delegating
from tests.engine.stateful.user_streams.own_streams import (
    NumbersIterator,
    OneArgument,
    OurNumbers,
    Process,
)


class GrainIterator(NumbersIterator, grain.DatasetIterator[int]):
    pass


class GrainNumbers(grain.IterDataset[int]):
    def __init__(self, stop: int) -> None:
        super().__init__()
        self._values = range(stop)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        self._values = self._values[sl]

    def __iter__(self) -> Any:
        return GrainIterator(self._values)


def workers(count: int) -> gm.MultiprocessingOptions:
    return gm.MultiprocessingOptions(num_workers=count)


@pytest.mark.parametrize(("stop", "count"), [(0, 2), (1, 2), (5, 2), (23, 3)])
def test_slices_alternate_as_in_grain(stop: int, count: int):
    expected = [
        value
        for round_ in range(-(-stop // count))
        for value in range(round_ * count, min(stop, (round_ + 1) * count))
    ]
    with iter(OurNumbers(stop).mp_prefetch(workers(count))) as iterator:
        assert list(iterator) == expected


def test_steps_run_on_each_slice_as_in_grain():
    slices = [GrainNumbers(22), GrainNumbers(22)]
    for index, part in enumerate(slices):  # what Grain's workers do with their copies
        part.set_slice(slice(index, None, 2))
    expected = grain.experimental.InterleaveIterDataset(
        [part.map(lambda x: 2 * x).batch(3) for part in slices], cycle_length=2
    )
    made = OurNumbers(22).map(lambda x: 2 * x).batch(3).mp_prefetch(workers(2))
    with iter(made) as iterator:
        assert [b.tolist() for b in iterator] == [b.tolist() for b in expected]


@pytest.mark.parametrize("kind", [OurNumbers, OneArgument])
def test_it_resumes_at_every_element_by_the_users_states(kind: Any):
    ds = kind(5).mp_prefetch(workers(2))
    expected = list(ds)
    with iter(ds) as iterator, iter(ds) as other:
        for number in range(len(expected) + 1):
            other.set_state(json.loads(json.dumps(iterator.get_state())))
            assert list(other) == expected[number:]
            next(iterator, None)


def test_each_slice_has_a_worker_of_its_own():
    with iter(Process(8).mp_prefetch(workers(2))) as iterator:
        ids = list(iterator)
    assert os.getpid() not in ids
    assert len(set(ids)) == 2
    assert ids == ids[:2] * 4


def test_a_state_needs_the_same_number_of_slices():
    with iter(OurNumbers(9).mp_prefetch(workers(2))) as iterator:
        next(iterator)
        state = iterator.get_state()
    with (
        iter(OurNumbers(9).mp_prefetch(workers(3))) as other,
        pytest.raises(StateError, match="Interleave"),
    ):
        other.set_state(state)


def test_one_worker_reads_the_whole_stream():
    with iter(OurNumbers(6).mp_prefetch(workers(1))) as iterator:
        assert list(iterator) == list(range(6))


@pytest.mark.parametrize("is_sequential", [False, True])
@pytest.mark.parametrize("stop", [0, 1, 9])
def test_a_stream_that_passes_the_slice_on_is_read_as_in_grain(stop: int, is_sequential: bool):
    def dataset(library: Any) -> Any:
        records = library.MapDataset.range(stop).shuffle(1).map(lambda x: 2 * x)
        return delegating(library)(records.to_iter_dataset())

    slices = [dataset(grain), dataset(grain)]
    for index, part in enumerate(slices):  # what Grain's workers do with their copies
        part.set_slice(slice(index, None, 2), is_sequential)
    expected = list(grain.experimental.InterleaveIterDataset(slices, cycle_length=2))

    made = dataset(gm).mp_prefetch(workers(2), sequential_slice=is_sequential)
    with iter(made) as iterator, iter(made) as other:
        for number in range(len(expected) + 1):
            other.set_state(json.loads(json.dumps(iterator.get_state())))
            assert list(other) == expected[number:]
            next(iterator, None)
    assert sorted(dataset(gm)) == sorted(expected), "the dataset itself did not change"
