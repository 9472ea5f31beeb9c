"""Schedules as users write them, through `mix` of both kinds of datasets."""

import json
from typing import Any

import pytest

import gristmill as gm
from gristmill import IterDataset, MapDataset, MixSchedule
from gristmill._plan.mix_schedule import as_schedule
from gristmill.errors import PlanError, PlanTypeError

TABLE = {0: [1, 0], 4: [1, 1], 10: [1, 3]}


def streams() -> list[IterDataset[int]]:
    return [MapDataset.range(100 * at, 100 * at + 60).to_iter_dataset() for at in (0, 1)]


def datasets() -> list[MapDataset[int]]:
    return [MapDataset.range(100 * at, 100 * at + 60) for at in (0, 1)]


def by_function(step: int) -> list[int]:
    return TABLE[max(start for start in TABLE if start <= step)]


FORMS: list[Any] = [TABLE, list(TABLE.items()), by_function, MixSchedule(TABLE)]


@pytest.mark.parametrize("weights", FORMS, ids=lambda form: type(form).__name__)
def test_a_schedule_is_a_table_or_a_function(weights: Any):
    expected = [0, 1, 2, 3, 4, 100, 5, 101, 6, 102, 7, 103, 104, 105, 8, 106]
    mixed = MapDataset.mix(datasets(), weights)
    assert [mixed[index] for index in range(16)] == expected
    assert list(mixed)[:16] == expected
    assert list(IterDataset.mix(streams(), weights))[:16] == expected


def test_named_streams_have_weights_by_name():
    named = dict(zip("ba", streams(), strict=True))
    by_name = {0: {"a": 1, "b": 0}, 3: {"b": 1, "a": 0}}
    assert list(IterDataset.mix(named, by_name))[:6] == [100, 101, 102, 0, 1, 2]
    in_order = {0: [1, 0], 3: [0, 1]}
    assert list(IterDataset.mix(named, in_order))[:6] == [100, 101, 102, 0, 1, 2]


def test_a_step_may_be_a_batch():
    mixed = MapDataset.mix(datasets(), MixSchedule({0: [1, 0], 2: [0, 1]}, step_size=5)).batch(5)
    assert [batch.tolist()[0] for batch in mixed][:4] == [0, 5, 100, 105]


def test_the_length_is_exact():
    mixed = MapDataset.mix(datasets(), {0: [1, 0], 50: [1, 1]})
    assert len(mixed) == 70
    assert sorted(mixed) == [*range(60), *range(100, 110)]
    endless = MapDataset.mix([ds.repeat() for ds in datasets()], by_function)
    assert endless[3000] in range(200)
    later = MapDataset.mix(datasets(), {0: [1, 0], 60: [0, 1]})
    assert len(later) == 120


def test_a_stream_ends_when_the_next_element_is_missing():
    assert len([*IterDataset.mix(streams(), {0: [1, 0], 50: [1, 1]})]) == 70


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", ["map", "iter", "named"])
@pytest.mark.parametrize("weights", [TABLE, by_function], ids=["table", "function"])
def test_a_run_resumes_anywhere(kind: str, weights: Any, num_workers: int):
    if kind == "map":
        ds: Any = MapDataset.mix(datasets(), weights).map(lambda x: -x).to_iter_dataset()
    elif kind == "iter":
        ds = IterDataset.mix(streams(), weights).map(lambda x: -x)
    else:
        ds = IterDataset.mix(dict(zip("ab", streams(), strict=True)), weights).map(lambda x: -x)
    stream = ds.batch(3)
    expected = [batch.tolist() for batch in stream]
    other = stream.mp_prefetch(gm.MultiprocessingOptions(num_workers=num_workers))
    for taken in (0, 1, 4, 20):
        iterator = iter(stream)
        for _ in range(taken):
            next(iterator)
        state = json.loads(json.dumps(iterator.get_state()))
        with iter(other) as resumed:
            resumed.set_state(state)
            assert [batch.tolist() for batch in resumed] == expected[taken:]


def test_shards_are_the_mix_together():
    mixed = MapDataset.mix(datasets(), TABLE)
    shards = [list(mixed[shard::3]) for shard in range(3)]
    assert sorted(x for shard in shards for x in shard) == sorted(mixed)


@pytest.mark.parametrize("kind", ["map", "iter", "named"])
def test_weights_may_change_at_a_restore(kind: str):
    """New weights from step 12 on: what was read stays as it was, nothing is read twice."""

    def made(weights: Any) -> Any:
        if kind == "map":
            return MapDataset.mix(datasets(), weights).to_iter_dataset()
        named = dict(zip("ab", streams(), strict=True))
        return IterDataset.mix(named if kind == "named" else streams(), weights)

    old, new = {0: [1, 1]}, {0: [1, 1], 12: [0, 1]}
    iterator = iter(made(old))
    before = [next(iterator) for _ in range(12)]
    resumed = iter(made(new))
    resumed.set_state(iterator.get_state())
    after = list(resumed)
    assert after[:3] == [106, 107, 108]
    assert before + after == list(made(new))


def test_constant_weights_may_become_a_schedule_at_a_restore():
    iterator = iter(IterDataset.mix(streams(), [1, 1]))
    before = [next(iterator) for _ in range(4)]
    resumed = iter(IterDataset.mix(streams(), {0: [1, 1], 4: [1, 0]}))
    resumed.set_state(iterator.get_state())
    assert before + [next(resumed) for _ in range(3)] == [0, 100, 1, 101, 2, 3, 4]


def test_the_label_shows_the_weights():
    mixed = MapDataset.mix(datasets(), {0: [1, 0], 5: [0.2, 0.8]})
    assert "Mix(weights={0: [1, 0], 5: [1, 4]})" in str(mixed)
    assert "by_function" in str(MapDataset.mix(datasets(), by_function))
    long = MapDataset.mix(datasets(), {step: [1, step + 1] for step in range(100)})
    assert "..." in str(long)
    assert repr(MixSchedule({0: [1]}, step_size=3)) == "MixSchedule({0: [1]}, step_size=3)"


def test_constant_weights_are_not_a_schedule():
    for weights in (None, [1, 2], (0.5, 0.5), {"a": 1.0}, []):
        assert as_schedule(weights) is None


@pytest.mark.parametrize(
    ("weights", "kind", "message"),
    [
        ({1: [1, 1]}, PlanError, r"A schedule must begin with step 0, got the steps \[1\]"),
        ({0: [1, 1], -2: [1, 1]}, PlanError, "`step` must be at least 0"),
        ({0: [1, 1], 0.5: [1, 1]}, PlanTypeError, "`step` must be an integer"),
        ({0: [1]}, PlanError, "weights of step 0 must have one number for each dataset, got 1"),
        ({0: [1, -1]}, PlanError, "weights of step 0 must be at least 0"),
        ({0: [1, 1], 5: [0, 0]}, PlanError, "weights of step 5 must be .* above 0 for one"),
        ({0: [1, float("nan")]}, PlanError, "weights of step 0 must be at least 0"),
        ({0: ["a", 1]}, PlanTypeError, "weights of step 0 must be numbers"),
        ({0: {"a": 1, "b": 1}}, PlanError, "step 0 must have a list of numbers, got {'a': 1"),
        ([(0, [1, 1], 3)], PlanTypeError, "pairs of a step and its weights"),
        (lambda step: None, PlanTypeError, "weights of step 0 must be numbers, got None"),
        (lambda step: [1], PlanError, "weights of step 0 must have one number for each"),
        (MixSchedule({0: [1, 1, 1]}), PlanError, "got 3 for 2 datasets"),
    ],
)
def test_schedules_that_do_not_fit_are_refused_where_they_are_mixed(
    weights: Any, kind: type, message: str
):
    with pytest.raises(kind, match=message):
        MapDataset.mix(datasets(), weights)
    with pytest.raises(kind, match=message):
        IterDataset.mix(streams(), weights)


def test_arguments_of_a_schedule_are_checked():
    with pytest.raises(PlanError, match="`step_size` must be at least 1"):
        MixSchedule({0: [1]}, step_size=0)
    wrong: Any = 3
    with pytest.raises(PlanTypeError, match="A schedule is a table from steps to weights"):
        MixSchedule(wrong)
    named = dict(zip("ab", streams(), strict=True))
    with pytest.raises(PlanError, match=r"step 0 must have the keys \['a', 'b'\], got"):
        IterDataset.mix(named, {0: {"a": 1, "c": 2}})


def test_an_error_of_the_function_names_the_step():
    def weights(step: int) -> list[float]:
        return [1, 1 / (2000 - step)]

    mixed = MapDataset.mix([ds.repeat() for ds in datasets()], weights)
    assert mixed[100] is not None
    with pytest.raises(ZeroDivisionError) as caught:
        mixed[2500]
    assert any("In the weights of step 2000" in note for note in caught.value.__notes__)
