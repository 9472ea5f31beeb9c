"""The steps of a dataset are measured one by one, although they run inside of each other."""

import sys
import time
from typing import Any

import cloudpickle
import pytest

import gristmill as gm
from gristmill._engine.access.nested_clock import MAX_STEPS
from gristmill._metrics.stats import StepStats
from gristmill.sources import RangeDataSource

cloudpickle.register_pickle_by_value(sys.modules[__name__])

RUNS: dict[str, Any] = {"inline": (0, 0), "threads": (4, 0), "workers": (1, 1)}


def slow(number: int) -> int:
    time.sleep(0.005)
    return number


def slow_batch(batch: Any) -> Any:
    time.sleep(0.005)
    return batch


def quick(number: int) -> int:
    return number


def stats_of(dataset: Any, run: str = "inline") -> gm.Stats:
    num_threads, num_workers = RUNS[run]
    stream = dataset.to_iter_dataset(gm.ReadOptions(num_threads=num_threads))
    if num_workers:
        stream = stream.mp_prefetch(gm.MultiprocessingOptions(num_workers=num_workers))
    with iter(stream) as iterator:
        for _ in iterator:
            pass
        return iterator.stats()


def steps_of(dataset: Any, run: str = "inline") -> dict[str, StepStats]:
    return {step.name: step for step in stats_of(dataset, run).steps}


@pytest.mark.parametrize("run", RUNS)
def test_each_step_of_a_dataset_has_its_own_time(run: str):
    dataset = gm.MapDataset.source(list(range(32))).shuffle(1).map(quick).map(slow).batch(8)

    steps = steps_of(dataset, run)

    assert list(steps) == ["reading list(<32 records>)", "Map quick", "Map slow", "Batch(8)"]
    assert steps["Map slow"].elapsed_s >= 32 * 0.005
    others_s = sum(step.elapsed_s for step in steps.values()) - steps["Map slow"].elapsed_s
    assert others_s < steps["Map slow"].elapsed_s
    assert [step.num_records for step in steps.values()] == [32, 0, 0, 0]


def test_the_step_that_waits_is_the_bottleneck():
    bottleneck = stats_of(gm.MapDataset.range(32).map(slow).batch(8)).bottleneck

    assert bottleneck is not None
    assert (bottleneck.kind, bottleneck.step) == ("waiting", "Map slow")


def test_a_step_above_the_dataset_is_measured_besides():
    dataset = gm.MapDataset.range(16).map(quick).batch(4).to_iter_dataset().map(slow_batch)

    with iter(dataset) as iterator:
        list(iterator)
        steps = {step.name: step for step in iterator.stats().steps}

    assert list(steps)[1:] == ["Map quick", "Batch(4)", "Map slow_batch"]
    assert steps["Map slow_batch"].elapsed_s >= 4 * 0.005


def test_steps_with_the_same_name_are_measured_together():
    parts = [gm.MapDataset.range(8).map(quick) for _ in range(3)]

    steps = steps_of(gm.MapDataset.mix(parts, [1, 1, 1]))

    reading, *others = steps
    assert reading.startswith("reading ")
    assert steps[reading].num_records == 24
    assert [name.partition("(")[0] for name in others] == ["Map quick", "Mix"]


def test_a_dataset_that_is_shared_by_its_parents_is_measured_once():
    shared = gm.MapDataset.range(8).map(quick)

    assert list(steps_of(gm.MapDataset.concatenate([shared, shared])))[1:] == [
        "Map quick",
        "Concatenate(2 datasets)",
    ]


def test_very_many_steps_are_measured_together():
    parts = [gm.MapDataset.source(RangeDataSource(0, n, 1)) for n in range(2, MAX_STEPS + 3)]

    assert len(steps_of(gm.MapDataset.concatenate(parts))) == 1


def test_a_step_that_raises_leaves_the_clock_of_the_others_right():
    def fail_on_three(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return slow(number)

    dataset = gm.MapDataset.range(6).map(fail_on_three)
    stream = dataset.to_iter_dataset(gm.ReadOptions(num_threads=0), on_error=gm.SkipErrors(1))
    with iter(stream) as iterator:
        assert list(iterator) == [0, 1, 2, 4, 5]
        steps = {step.name: step for step in iterator.stats().steps}

    assert steps["Map fail_on_three"].elapsed_s >= 5 * 0.005
