"""The number of the next element: reported and set as in Grain, where it is known."""

from typing import Any

import pytest

from gristmill._api.experimental.next_index import get_next_index, set_next_index
from gristmill.errors import StateError
from tests.compat.both_sides import SIDES, assert_same, double, jitter, number, ours, passes, take

PROGRAMS = {
    "range": lambda api: api.MapDataset.range(10).to_iter_dataset(),
    "map": lambda api: api.MapDataset.range(10).shuffle(1).to_iter_dataset().map(double),
    "batch": lambda api: api.MapDataset.range(10).to_iter_dataset().batch(3).map(double),
    "batch of batches": lambda api: (
        api.MapDataset.range(12)
        .to_iter_dataset()
        .batch(2, drop_remainder=True)
        .batch(3, drop_remainder=True)
    ),
    "counted": lambda api: (
        api.MapDataset.range(10)
        .to_iter_dataset()
        .map_with_index(number)
        .random_map(jitter, seed=1)
        .map(double)
    ),
    "counted batches": lambda api: (
        api.MapDataset.range(10).to_iter_dataset().batch(2).random_map(jitter, seed=1)
    ),
    "limited": lambda api: api.experimental.LimitIterDataset(
        api.MapDataset.range(10).to_iter_dataset().map(double), 7
    ),
    "absent ones": lambda api: api.MapDataset.range(10).filter(passes(2)).to_iter_dataset(),
    "ahead": lambda api: api.experimental.ThreadPrefetchIterDataset(
        api.MapDataset.range(10).to_iter_dataset().map(double), prefetch_buffer_size=2
    ),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_the_next_index_is_grains_before_and_after_each_element(program: Any):
    theirs, own = (iter(program(api)) for api in SIDES)
    while True:
        described = SIDES[0].experimental.get_next_index(theirs)
        if program is not PROGRAMS["ahead"] or described:  # Grain's counts by itself
            assert get_next_index(own) == described
        made = [next(iterator, None) for iterator in (theirs, own)]
        assert_same(made[1], made[0])
        if made[0] is None:
            break


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_going_to_an_index_yields_grains_rest(program: Any):
    count = len(take(iter(program(ours))))
    for index in range(count):
        theirs, own = (iter(program(api)) for api in SIDES)
        SIDES[0].experimental.set_next_index(theirs, index)
        set_next_index(own, index)
        assert get_next_index(own) == index
        assert_same(take(own), take(theirs))


def test_the_end_is_an_index_too():
    iterator = iter(ours.MapDataset.range(10).to_iter_dataset().batch(3))
    set_next_index(iterator, 4)
    assert take(iterator) == []
    assert get_next_index(iterator) == 4
    with pytest.raises(IndexError):
        set_next_index(iterator, 5)


def test_after_a_filter_it_is_not_known():
    iterator = iter(ours.MapDataset.range(10).to_iter_dataset().filter(passes(2)))
    with pytest.raises(StateError, match=r"Filter .* is not known without counting"):
        get_next_index(iterator)
    with pytest.raises(StateError, match="Filter"):
        set_next_index(iterator, 2)


def test_users_own_iterators_may_know():
    class Count(ours.DatasetIterator):
        index = 0

        def __next__(self) -> int:
            self.index += 1
            return self.index - 1

        def get_state(self) -> Any:
            return {"index": self.index}

        def set_state(self, state: Any) -> None:
            self.index = state["index"]

    with pytest.raises(StateError, match="Count"):
        get_next_index(Count())
    with pytest.raises(StateError, match="Count"):
        set_next_index(Count(), 3)

    class Knowing(Count):
        def _get_next_index(self) -> int:
            return self.index

        def _set_next_index(self, index: int) -> None:
            self.index = index

    knowing = Knowing()
    set_next_index(knowing, 7)
    assert (next(knowing), get_next_index(knowing)) == (7, 8)
