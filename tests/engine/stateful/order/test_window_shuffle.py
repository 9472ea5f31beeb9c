"""`WindowShuffleIterDataset`: Grain's order, and at most one window read again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._engine.stateful.order.window_shuffle import MAX_BLOCK_ELEMENTS
from gristmill.errors import PlanError
from tests.compat.both_sides import STEADY, assert_resumes, assert_same_stream, ours, take
from tests.compat.stream_trees import numbers, streams


def _shuffled(api: Any, count: int, window: int, seed: int = 7) -> Any:
    stream = numbers(api, count)
    return streams(api).WindowShuffleIterDataset(stream, window_size=window, seed=seed)


@STEADY
@given(count=st.integers(0, 40), window=st.integers(1, 50), seed=st.integers(0, 2**32 - 100))
def test_shuffles_as_grain_does(count: int, window: int, seed: int):
    assert_same_stream(lambda api: _shuffled(api, count, window, seed))


@pytest.mark.parametrize("window", [1, 3, 7, 20, 30])
def test_goes_on_from_any_state(window: int):
    shuffled = _shuffled(ours, 20, window)
    assert_resumes(shuffled)
    assert_resumes(shuffled.filter(lambda x: x % 3 > 0).batch(2))


def test_a_window_larger_than_a_block_is_returned_in_several():
    count, window = 2 * MAX_BLOCK_ELEMENTS, MAX_BLOCK_ELEMENTS + 100
    assert_same_stream(lambda api: _shuffled(api, count, window))
    expected = take(iter(_shuffled(ours, count, window)))
    for cut in (MAX_BLOCK_ELEMENTS - 1, MAX_BLOCK_ELEMENTS, MAX_BLOCK_ELEMENTS + 1, window):
        first, resumed = (iter(_shuffled(ours, count, window)) for _ in range(2))
        assert take(first, cut) == expected[:cut]
        resumed.set_state(first.get_state())
        assert take(resumed) == expected[cut:]


def test_going_on_reads_at_most_a_window_again():
    read: list[int] = []
    stream = numbers(ours, 5000).map(lambda x: (read.append(x), x)[1])
    shuffled = streams(ours).WindowShuffleIterDataset(stream, window_size=10, seed=1)
    first = iter(shuffled)
    take(first, 4321)
    first.close()
    resumed = iter(shuffled)
    resumed.set_state(first.get_state())
    read.clear()
    next(resumed)
    resumed.close()
    assert min(read) == 4320


@pytest.mark.parametrize("at", [0, 5, 9])
def test_an_error_stands_in_place_of_its_window(at: int):
    def program(api: Any) -> Any:
        stream = numbers(api, 10).map(lambda x: 1 // (x != at) and x)
        return streams(api).WindowShuffleIterDataset(stream, window_size=4, seed=3)

    assert_same_stream(program)
    iterator = iter(program(ours))
    take(iterator)
    with pytest.raises(ZeroDivisionError):
        next(iterator)


def test_a_window_of_none_is_refused():
    with pytest.raises(PlanError, match="window_size"):
        _shuffled(ours, 3, 0)
