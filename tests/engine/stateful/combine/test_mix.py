"""`IterDataset.mix`: Grain's order, states by position or by name, a cost without them."""

import itertools
import json
import logging
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill
from gristmill._engine.stateful.combine.mix import WINDOW_TURNS, Schedule, Turns
from gristmill._plan.mixing import choose, choose_run
from gristmill.errors import PlanError, PlanTypeError, StateError
from tests.compat.both_sides import (
    SIDES,
    STEADY,
    assert_resumes,
    assert_same,
    assert_same_stream,
    ours,
    take,
)
from tests.compat.stream_trees import numbers

SHARES = st.lists(st.integers(1, 300), min_size=1, max_size=12).map(tuple)
WEIGHTS = st.sampled_from([0.01, 0.1, 0.25, 0.3, 0.5, 0.7, 1.0, 3.0])


@STEADY
@given(parts=st.lists(st.tuples(st.integers(0, 40), WEIGHTS), min_size=1, max_size=6))
def test_mixes_as_grain_does(parts: list[tuple[int, float]]):
    def program(api: Any) -> Any:
        datasets = [numbers(api, 100 * at, 100 * at + size) for at, (size, _) in enumerate(parts)]
        return api.IterDataset.mix(datasets, [weight for _, weight in parts])

    assert_same_stream(program)


def test_a_mapping_is_mixed_in_the_order_of_its_keys():
    def program(api: Any) -> Any:
        datasets = {"b": numbers(api, 9), "a": numbers(api, 50, 70), "c": numbers(api, 90, 97)}
        return api.IterDataset.mix(datasets, {"c": 0.2, "a": 0.5, "b": 0.3})

    assert_same_stream(program)
    assert_resumes(program(ours))


def test_goes_on_from_any_state():
    datasets = [numbers(ours, 30), numbers(ours, 50, 70).filter(lambda x: x % 3 > 0)]
    assert_resumes(gristmill.IterDataset.mix(datasets, [2, 1]))


def test_a_long_mix_goes_over_many_windows_of_turns():
    def program(api: Any) -> Any:
        datasets = [numbers(api, 40_000), numbers(api, 50_000, 90_000), numbers(api, 5)]
        return api.IterDataset.mix(datasets, [1.0, 0.777, 0.00001234])

    assert_same_stream(program, 3 * WINDOW_TURNS)


@STEADY
@given(shares=SHARES, start=st.integers(0, 10**6) | st.integers(0, 2**61), count=st.integers(1, 90))
def test_turns_are_those_of_single_outputs(shares: tuple[int, ...], start: int, count: int):
    turns = Turns.chosen(*choose_run(range(start, start + count), shares))
    expected, within = choose(np.arange(start, start + count), shares)
    assert turns.numbers.tolist() == expected.tolist()
    for number in set(expected.tolist()):
        own = turns.ranks[expected == number]
        assert own.tolist() == list(range(len(own)))
        assert np.array_equal(own, within[expected == number] - within[expected == number][0])


@given(shares=SHARES)
def test_turns_repeat_after_their_sum(shares: tuple[int, ...]):
    schedule = Schedule(shares)
    for window in (0, 1, 5):
        start = window * schedule.window
        expected, _ = choose(np.arange(start, start + 50), shares)
        assert schedule.turns(window).order[:50] == expected.tolist()


# Components that change between two runs


def _named(weights: dict[str, float]) -> Any:
    every = {"a": (0, 50), "b": (100, 150), "c": (200, 250), "d": (300, 350)}
    return lambda api: api.IterDataset.mix(
        {name: numbers(api, *every[name]) for name in weights}, weights
    )


@pytest.mark.parametrize(
    "later",
    [
        {"a": 1.0, "b": 1.0, "c": 1.0},
        {"a": 3.0, "b": 1.0, "c": 0.5},
        {"a": 1.0, "b": 2.0, "c": 1.0, "d": 0.7},
        {"b": 1.0, "d": 1.0},
        {"d": 1.0},
    ],
)
@pytest.mark.parametrize("cut", [0, 1, 7, 20])
def test_named_components_and_weights_may_change_as_in_grain(later: dict[str, float], cut: int):
    rests: list[list[Any]] = []
    for api in SIDES:
        first = iter(_named({"a": 1.0, "b": 1.0, "c": 1.0})(api))
        for _ in itertools.islice(first, cut):
            pass
        resumed = iter(_named(later)(api))
        resumed.set_state(json.loads(json.dumps(first.get_state())))
        rests.append(take(resumed))
    assert_same(rests[1], rests[0])


def test_a_state_of_another_number_of_components_is_refused():
    mix = gristmill.IterDataset.mix
    state = iter(mix([numbers(ours, 5), numbers(ours, 5)])).get_state()
    resumed = iter(mix([numbers(ours, 5)]))
    with pytest.raises(StateError):
        resumed.set_state(state)


# Errors


def _failing(api: Any, at: int) -> Any:
    def fail(x: int) -> int:
        if x == at:
            raise LookupError(f"no {x}")
        return x

    return numbers(api, 20).map(fail)


@pytest.mark.parametrize("at", [0, 1, 5, 19])
def test_an_error_comes_after_what_is_before_it(at: int):
    def program(api: Any) -> Any:
        return api.IterDataset.mix([numbers(api, 100, 200), _failing(api, at)], [1, 0.5])

    assert_same_stream(program)
    iterator = iter(program(gristmill))
    before = take(iterator)[:-1]
    state = iterator.get_state()
    with pytest.raises(LookupError) as caught:
        next(iterator)
    assert any("from dataset 1" in note for note in caught.value.__notes__)
    assert iterator.get_state() == state
    assert len(before) == len(set(before))


def test_a_component_that_never_yields_again_is_not_asked_before_its_turn():
    asked: list[int] = []

    def note(x: int) -> int:
        asked.append(x)
        return x

    late = numbers(ours, 1000).map(note)
    mixed = gristmill.IterDataset.mix([numbers(ours, 10), late], [1000, 1])
    with iter(mixed) as iterator:
        assert next(iterator) == 0
    assert not asked


@pytest.mark.parametrize(
    ("datasets", "weights"),
    [([], None), ({}, None), ([1], None), (["a"], [1.0]), ("two", [1.0]), ("two", [1.0, 0.0])],
)
def test_what_cannot_be_mixed_is_refused_when_written(datasets: Any, weights: Any):
    if datasets == "two":
        datasets = [numbers(ours, 3), numbers(ours, 3)]
    with pytest.raises(PlanError):
        gristmill.IterDataset.mix(datasets, weights)


def test_weights_must_be_named_like_the_datasets():
    named = {"a": numbers(ours, 3), "b": numbers(ours, 3)}
    with pytest.raises(PlanError, match="must have the keys of the datasets"):
        gristmill.IterDataset.mix(named, {"a": 1.0, "c": 1.0})
    with pytest.raises(PlanError, match="have names"):
        gristmill.IterDataset.mix(list(named.values()), {"a": 1.0, "b": 1.0})
    with pytest.raises(PlanTypeError, match="to_iter_dataset"):
        gristmill.IterDataset.mix([3])  # pyright: ignore[reportArgumentType]


def test_threads_do_not_grow_with_the_components():
    def slow(api: Any, at: int) -> Any:
        gate = threading.Event()
        return api.MapDataset.range(at, at + 50).map(lambda x: (gate.wait(0.001), x)[1])

    before = threading.active_count()
    datasets = [slow(ours, 100 * at).to_iter_dataset() for at in range(20)]
    with iter(gristmill.IterDataset.mix(datasets)) as iterator:
        taken = list(itertools.islice(iterator, 100))
        assert threading.active_count() - before <= 17
    assert len(set(taken)) == 100


def _counting(first: int) -> gristmill.IterDataset[int]:
    return gristmill.MapDataset.range(first, first + 100).to_iter_dataset()


def _after(mixed: Any, count: int) -> Any:
    iterator = iter(mixed)
    for _ in range(count):
        next(iterator)
    return json.loads(json.dumps(iterator.get_state()))


def test_a_list_restored_with_other_weights_continues_each_stream_where_it_was():
    state = _after(gristmill.IterDataset.mix([_counting(0), _counting(1000)], [1, 1]), 10)
    iterator = iter(gristmill.IterDataset.mix([_counting(0), _counting(1000)], [3, 1]))
    iterator.set_state(state)
    rest = [next(iterator) for _ in range(40)]
    assert [x for x in rest if x < 1000] == list(range(5, 35))
    assert [x for x in rest if x >= 1000] == list(range(1005, 1015))


def test_a_list_restored_with_one_more_stream_starts_that_one():
    state = _after(gristmill.IterDataset.mix([_counting(0), _counting(1000)]), 10)
    iterator = iter(gristmill.IterDataset.mix([_counting(0), _counting(1000), _counting(2000)]))
    iterator.set_state(state)
    rest = sorted(next(iterator) for _ in range(30))
    assert rest[:10] == list(range(5, 15))
    assert rest[10:20] == list(range(1005, 1015))
    assert rest[20:] == list(range(2000, 2010))


def test_a_list_restored_with_one_stream_less_ignores_its_position():
    state = _after(gristmill.IterDataset.mix([_counting(0), _counting(1000), _counting(2000)]), 9)
    iterator = iter(gristmill.IterDataset.mix([_counting(0), _counting(1000)]))
    iterator.set_state(state)
    assert sorted(next(iterator) for _ in range(4)) == [3, 4, 1003, 1004]


def test_a_list_with_another_stream_at_a_number_is_refused():
    state = _after(gristmill.IterDataset.mix([_counting(0), _counting(1000)]), 9)
    iterator = iter(gristmill.IterDataset.mix([_counting(1000), _counting(0)]))
    with pytest.raises(StateError, match="another source in dataset 0"):
        iterator.set_state(state)


def test_a_list_and_a_mapping_do_not_restore_each_other():
    by_name = {"0": _counting(0), "1": _counting(1000)}
    state = _after(gristmill.IterDataset.mix(by_name), 4)
    with pytest.raises(StateError, match="mapping of mixed datasets"):
        iter(gristmill.IterDataset.mix(list(by_name.values()))).set_state(state)
    state = _after(gristmill.IterDataset.mix(list(by_name.values())), 4)
    with pytest.raises(StateError):
        iter(gristmill.IterDataset.mix(by_name)).set_state(state)


@pytest.mark.parametrize("count", [2, 3])
def test_a_mixed_map_dataset_restored_with_other_weights_continues_at_its_index(
    count: int, caplog: pytest.LogCaptureFixture
):
    parts = [gristmill.MapDataset.range(first, first + 100) for first in (0, 1000, 2000)]
    state = _after(gristmill.MapDataset.mix(parts[:2]).to_iter_dataset().batch(2), 5)
    other = gristmill.MapDataset.mix(parts[:count], [3, 1, 1][:count])
    iterator = iter(other.to_iter_dataset().batch(2))
    with caplog.at_level(logging.INFO, logger="gristmill"):
        iterator.set_state(state)
    assert next(iterator).tolist() == [other[10], other[11]]
    assert "other datasets or weights" in caplog.text
