"""Mixing with weights that change: exact index maths at any index."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import MixSchedule
from gristmill._data.sampling.shard_lengths import ENDLESS
from gristmill._plan.mixing import as_proportions, choose
from gristmill._plan.scheduled_mixing import ScheduledMix
from gristmill.errors import PlanError

STEADY = settings(max_examples=150, deadline=None)

WEIGHT = st.sampled_from([0, 0.1, 0.3, 1, 2, 7.5])
COUNT = 3
ROW = st.lists(WEIGHT, min_size=COUNT, max_size=COUNT).filter(any)
TABLES = st.dictionaries(st.integers(1, 60), ROW, max_size=6).flatmap(
    lambda later: ROW.map(lambda first: {0: first, **later})
)


def mix_of(weights: Any, step_size: int = 1) -> ScheduledMix:
    return ScheduledMix(MixSchedule(weights, step_size=step_size), None, COUNT)


def chosen(mix: ScheduledMix, count: int) -> tuple[list[int], list[int]]:
    numbers, within = mix.choose(np.arange(count))
    return numbers.tolist(), within.tolist()


@STEADY
@given(row=ROW.filter(all), cuts=st.sets(st.integers(1, 200), max_size=5))
def test_equal_weights_in_several_steps_are_constant_weights(row: list[float], cuts: set[int]):
    numbers, within = choose(np.arange(250), as_proportions(row, COUNT))
    assert chosen(mix_of(dict.fromkeys([0, *cuts], row)), 250) == (
        numbers.tolist(),
        within.tolist(),
    )
    assert chosen(mix_of(lambda step: row), 250) == (numbers.tolist(), within.tolist())


@STEADY
@given(table=TABLES, step_size=st.integers(1, 5))
def test_each_dataset_is_read_in_order_and_gets_its_share(table: dict[int, Any], step_size: int):
    numbers, within = chosen(mix_of(table, step_size), 400)
    due = np.zeros(COUNT)
    for number in range(COUNT):
        own = [w for n, w in zip(numbers, within, strict=True) if n == number]
        assert own == list(range(len(own)))
    counts = np.zeros(COUNT)
    for index, number in enumerate(numbers):
        row = np.array(table[max(step for step in table if step <= index // step_size)], float)
        due += row / row.sum()
        counts[number] += 1
        assert row[number] > 0
        assert np.abs(counts - due).max() < 3.1


@STEADY
@given(table=TABLES, draw=st.data())
def test_any_indices_are_those_in_order(table: dict[int, Any], draw: st.DataObject):
    mix = mix_of(table)
    numbers, within = chosen(mix, 300)
    some = draw.draw(st.lists(st.integers(0, 299), max_size=20))
    found = mix.choose(np.array(some, dtype=np.int64))
    assert found[0].tolist() == [numbers[index] for index in some]
    assert found[1].tolist() == [within[index] for index in some]
    assert mix.choose_run(range(40, 90))[0].tolist() == numbers[40:90]
    assert chosen(pickle.loads(pickle.dumps(mix)), 300) == (numbers, within)


@STEADY
@given(table=TABLES, step=st.integers(61, 90), row=ROW)
def test_new_weights_from_a_step_on_leave_what_is_before(
    table: dict[int, Any], step: int, row: list[float]
):
    before, after = mix_of(table, 3), mix_of({**table, step: row}, 3)
    assert chosen(before, 3 * step) == chosen(after, 3 * step)


@STEADY
@given(table=TABLES, step_size=st.integers(1, 5))
def test_a_function_and_a_table_of_equal_weights_are_equal(table: dict[int, Any], step_size: int):
    def weights(step: int) -> Any:
        return table[max(start for start in table if start <= step)]

    assert chosen(mix_of(weights, step_size), 400) == chosen(mix_of(table, step_size), 400)


@STEADY
@given(table=TABLES, lengths=st.lists(st.integers(1, 60), min_size=COUNT, max_size=COUNT))
def test_the_length_is_where_the_first_dataset_is_exhausted(table: dict[int, Any], lengths: Any):
    numbers, within = chosen(mix_of(table), 20_000)
    ends = [i for i, (n, w) in enumerate(zip(numbers, within, strict=True)) if w >= lengths[n]]
    length = mix_of(table).length(lengths)
    assert length == ends[0]


def test_weights_may_change_with_each_element():
    count = 20_000
    rows = np.array([[1 + index / 5000, 2, 5 - index / 4000] for index in range(count)])
    numbers, _ = mix_of(lambda step: rows[step]).choose(np.arange(count))
    shares = (rows / rows.sum(axis=1, keepdims=True)).cumsum(axis=0)
    counts = (numbers[:, None] == np.arange(COUNT)).cumsum(axis=0)
    assert np.abs(shares - counts).max() < 6  # weights are rounded to a hundredth, as in Grain


def test_a_function_may_end_after_the_steps_that_are_needed():
    rows = [[1, 1, 1]] * 10
    assert len(chosen(mix_of(lambda step: rows[step]), 10)[0]) == 10
    with pytest.raises(IndexError, match="out of range"):
        chosen(mix_of(lambda step: rows[step]), 11)


def test_a_dataset_without_weight_is_not_exhausted():
    mix = mix_of({0: [1, 1, 1], 10: [0, 0, 1]})
    assert mix.length([ENDLESS] * 3) == ENDLESS
    assert mix.length([5, 5, ENDLESS]) == ENDLESS
    assert mix.length([5, 5, 100]) == 10 + 97
    assert mix.length([2, 5, ENDLESS]) == 6


def test_indices_may_be_as_large_as_any():
    mix = mix_of({0: [1, 2, 3], 1000: [3, 2, 1]}, step_size=7)
    large = 7000 + 6 * 2**70
    indices = np.array([large, large + 1, 3], dtype=object)
    numbers, within = mix.choose(indices)
    assert numbers.tolist()[2] == mix.choose(np.array([3]))[0][0]
    assert int(within[0]) > 2**70


def test_a_function_is_called_once_for_each_step():
    calls: list[int] = []

    def weights(step: int) -> list[float]:
        calls.append(step)
        return [1, 1, 2]

    mix = mix_of(weights, step_size=100)
    chosen(mix, 250_000)
    chosen(mix, 100)
    assert calls == list(range(len(calls)))
    assert 2500 <= len(calls) < 4000


def test_a_function_that_would_be_called_too_often_is_refused():
    with pytest.raises(PlanError, match=r"The weights of \d+ steps are needed.*`step_size`"):
        mix_of(lambda step: [1, 1, 1]).choose(np.array([2**40]))
    with pytest.raises(PlanError, match="steps are needed"):
        mix_of(lambda step: [0, 0, 1], step_size=2**40).length([4, 4, ENDLESS])


def test_mixes_are_equal_if_their_schedules_are():
    schedule = MixSchedule({0: [1, 1, 1]})
    one, other = (ScheduledMix(schedule, None, COUNT) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != mix_of({0: [1, 1, 2]})
