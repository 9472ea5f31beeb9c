"""`RepeatIterDataset`, `LimitIterDataset` and `CacheIterDataset`, alone and on one another."""

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.errors import PlanError
from tests.compat.both_sides import STEADY, assert_resumes, assert_same_stream, ours, take
from tests.compat.stream_trees import numbers, streams


@STEADY
@given(count=st.integers(0, 9), num_epochs=st.integers(1, 4), limit=st.integers(1, 30))
def test_repeats_and_limits_as_grain_does(count: int, num_epochs: int, limit: int):
    def program(api: Any) -> Any:
        repeated = streams(api).RepeatIterDataset(numbers(api, count), num_epochs)
        return streams(api).LimitIterDataset(repeated, limit)

    assert_same_stream(program)
    assert_resumes(program(ours))


@pytest.mark.parametrize("num_epochs", [1, 2, 5])
def test_a_cache_that_is_repeated_yields_what_grain_yields(num_epochs: int):
    def program(api: Any) -> Any:
        of = streams(api)
        cached = of.CacheIterDataset(numbers(api, 9).filter(lambda x: x % 3 > 0))
        return of.RepeatIterDataset(cached.map(lambda x: x + 1).batch(2), num_epochs)

    assert_same_stream(program)
    assert_resumes(program(ours))


def test_every_epoch_is_like_the_first():
    def program(api: Any) -> Any:
        stream = numbers(api, 20).seed(3).random_map(lambda x, rng: x + int(rng.integers(100)))
        return streams(api).RepeatIterDataset(stream, 3)

    assert_same_stream(program)


def test_an_endless_repetition_goes_on_from_any_state():
    endless = streams(ours).RepeatIterDataset(numbers(ours, 5))
    assert list(itertools.islice(endless, 12)) == [*range(5), *range(5), 0, 1]
    assert_resumes(endless, 12)


def test_nothing_repeated_without_end_is_nothing():
    assert list(streams(ours).RepeatIterDataset(numbers(ours, 0))) == []


def test_what_is_cached_is_made_once():
    made: Counter[int] = Counter()
    stream = numbers(ours, 3000).map(lambda x: (made.update([x]), x)[1])
    of = streams(ours)
    assert list(of.RepeatIterDataset(of.CacheIterDataset(stream), 3)) == [*range(3000)] * 3
    assert set(made.values()) == {1}


def test_after_a_restart_nothing_is_made_again_for_the_rest_of_the_epoch():
    made: list[int] = []
    of = streams(ours)
    stream = numbers(ours, 3000).map(lambda x: (made.append(x), x)[1])
    repeated = of.RepeatIterDataset(of.CacheIterDataset(stream), 4)
    first = iter(repeated)
    take(first, 2900)
    first.close()
    made.clear()
    resumed = iter(repeated)
    resumed.set_state(first.get_state())
    assert take(resumed) == [*range(2900, 3000), *([*range(3000)] * 3)]
    assert sorted(made) == sorted([*range(2900, 3000), *range(3000)])


def test_a_cache_can_be_sent_back_before_it_is_full():
    stream = streams(ours).CacheIterDataset(numbers(ours, 50))
    iterator = iter(stream)
    states = [iterator.get_state()]
    for _ in range(20):
        next(iterator)
        states.append(iterator.get_state())
    for number in (7, 0, 20, 13):
        iterator.set_state(states[number])
        assert next(iterator) == number
    iterator.set_state(states[3])
    assert take(iterator) == list(range(3, 50))
    iterator.set_state(states[3])
    assert take(iterator) == list(range(3, 50))


@pytest.mark.parametrize("at", [0, 4, 8])
@pytest.mark.parametrize("kind", ["RepeatIterDataset", "LimitIterDataset", "CacheIterDataset"])
def test_an_error_comes_after_what_is_before_it_and_again(kind: str, at: int):
    def program(api: Any) -> Any:
        stream = numbers(api, 9).map(lambda x: 1 // (x != at) and x)
        make = getattr(streams(api), kind)
        return make(stream) if kind == "CacheIterDataset" else make(stream, 9)

    assert_same_stream(program)
    iterator = iter(program(ours))
    take(iterator)
    state = iterator.get_state()
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    assert iterator.get_state() == state


def test_an_error_after_the_limit_is_not_met():
    def program(api: Any) -> Any:
        stream = numbers(api, 9).map(lambda x: 1 // (x < 4) and x)
        return streams(api).LimitIterDataset(stream, 4)

    assert_same_stream(program)


@pytest.mark.parametrize("kind", ["RepeatIterDataset", "LimitIterDataset"])
@pytest.mark.parametrize("count", [0, -1])
def test_none_at_all_is_refused(kind: str, count: int):
    assert_same_stream(lambda api: getattr(streams(api), kind)(numbers(api, 3), count))
    with pytest.raises(PlanError):
        getattr(streams(ours), kind)(numbers(ours, 3), count)
