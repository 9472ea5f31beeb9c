"""`InterleaveIterDataset`: Grain's order, and no more open than the cycle is long."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._api.dataset.iter_dataset import IterDataset
from gristmill._api.dataset.iterator import DatasetIterator
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.dataset.stream_datasets import InterleaveIterDataset, RepeatIterDataset
from gristmill.errors import PlanError, StateError
from tests.compat.both_sides import STEADY, assert_resumes, assert_same_stream, ours, take
from tests.compat.stream_trees import numbers, streams

# Grain's interleave may drop an iterator in the thread that the iterator then waits for.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

LENGTHS = st.lists(st.integers(0, 7), min_size=1, max_size=9)


def _interleaved(api: Any, lengths: list[int], cycle: int, *, as_map: bool = False) -> Any:
    spans = [(100 * at, 100 * at + count) for at, count in enumerate(lengths)]
    make = api.MapDataset.range if as_map else lambda *span: numbers(api, *span)
    return streams(api).InterleaveIterDataset([make(*span) for span in spans], cycle_length=cycle)


@STEADY
@given(lengths=LENGTHS, cycle=st.integers(1, 11))
def test_interleaves_as_grain_does(lengths: list[int], cycle: int):
    assert_same_stream(lambda api: _interleaved(api, lengths, cycle))


@settings(STEADY, max_examples=40)
@given(lengths=LENGTHS, cycle=st.integers(1, 11))
def test_goes_on_from_any_state(lengths: list[int], cycle: int):
    assert_resumes(_interleaved(ours, lengths, cycle))


def test_takes_map_datasets():
    assert_same_stream(lambda api: _interleaved(api, [3, 0, 5, 2], 2, as_map=True))


def test_steps_above_go_on_from_any_state():
    def program(api: Any) -> Any:
        return _interleaved(api, [9, 4, 1, 7, 30], 3).filter(lambda x: x % 3 > 0).batch(4)

    assert_same_stream(program)
    assert_resumes(program(ours))


def test_long_datasets_are_interleaved_by_the_block():
    assert_same_stream(lambda api: _interleaved(api, [5000, 9000, 20, 7000], 2))


def test_a_map_dataset_of_datasets_is_made_one_after_the_other():
    made: list[int] = []

    def make(number: int) -> Any:
        made.append(number)
        return MapDataset.range(10 * number, 10 * number + 3).to_iter_dataset()

    of_datasets = MapDataset.range(6).map(make)
    interleaved = InterleaveIterDataset(of_datasets, cycle_length=2)
    assert made == []
    with iter(interleaved) as iterator:
        next(iterator)
        iterator.get_state()
        assert len(made) <= 4
    expected = [0, 10, 1, 11, 2, 12, 20, 30, 21, 31, 22, 32, 40, 50, 41, 51, 42, 52]
    assert list(interleaved) == expected


def test_no_more_are_open_than_the_cycle_is_long():
    open_now: set[int] = set()
    most_open = 0

    class Numbers(DatasetIterator[int]):
        def __init__(self, first: int) -> None:
            nonlocal most_open
            super().__init__()
            self._first, self._count = first, 0
            open_now.add(first)
            most_open = max(most_open, len(open_now))

        def __next__(self) -> int:
            if self._count == 3:
                raise StopIteration
            self._count += 1
            return self._first + self._count

        def get_state(self) -> dict[str, Any]:
            return {"count": self._count}

        def set_state(self, state: dict[str, Any]) -> None:
            self._count = state["count"]

        def close(self) -> None:
            open_now.discard(self._first)

    class Files(IterDataset[int]):
        def __init__(self, first: int) -> None:
            super().__init__()
            self._first = first

        def __iter__(self) -> DatasetIterator[int]:
            return Numbers(self._first)

    files = [Files(10 * number) for number in range(30)]
    iterator = iter(InterleaveIterDataset(files, cycle_length=4))
    assert len(take(iterator)) == 90
    iterator.close()
    assert most_open == 4
    assert not open_now


@pytest.mark.parametrize("at", [0, 2, 4])
def test_an_error_comes_after_what_is_before_it(at: int):
    def program(api: Any) -> Any:
        failing = numbers(api, 5).map(lambda x: 1 // (x != at) and x)
        datasets = [numbers(api, 10, 13), failing, numbers(api, 20, 29)]
        return streams(api).InterleaveIterDataset(datasets, cycle_length=2)

    assert_same_stream(program)


def test_a_dataset_that_cannot_be_made_raises_in_its_place_and_again():
    def make(number: int) -> Any:
        if number == 2:
            raise OSError("no such file")
        return MapDataset.range(number, number + 2).to_iter_dataset()

    iterator = iter(InterleaveIterDataset(MapDataset.range(4).map(make), cycle_length=1))
    assert list(itertools.islice(iterator, 4)) == [0, 1, 1, 2]
    for _ in range(2):
        with pytest.raises(OSError, match="no such file"):
            next(iterator)


def test_can_be_repeated_and_nested():
    def program(api: Any) -> Any:
        inner = [_interleaved(api, [2, 5], 2), _interleaved(api, [4, 1, 3], 2), numbers(api, 4)]
        outer = streams(api).InterleaveIterDataset(inner, cycle_length=2)
        return streams(api).RepeatIterDataset(outer, 2)

    assert_same_stream(program)
    assert_resumes(program(ours))


def test_no_datasets_yield_no_elements():
    assert list(InterleaveIterDataset([], cycle_length=3)) == []
    assert list(RepeatIterDataset(InterleaveIterDataset([], cycle_length=3))) == []


def test_a_cycle_of_none_and_what_is_no_dataset_are_refused():
    with pytest.raises(PlanError, match="cycle_length"):
        InterleaveIterDataset([numbers(ours, 3)], cycle_length=0)
    with pytest.raises(PlanError, match="datasets"):
        next(iter(InterleaveIterDataset([3], cycle_length=1)))  # pyright: ignore[reportArgumentType]


def test_a_state_of_another_cycle_is_refused():
    state = iter(_interleaved(ours, [3, 3, 3], 2)).get_state()
    resumed = iter(_interleaved(ours, [3, 3, 3], 3))
    with pytest.raises(StateError):
        resumed.set_state(state)
