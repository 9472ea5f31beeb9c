"""What the counters show about the limit of a run."""

from dataclasses import replace
from typing import Any

import pytest

from gristmill._metrics.bottleneck import BottleneckKind, find_bottleneck
from gristmill._metrics.stats import Stats, StepStats


def stats_of(*steps: StepStats, **values: Any) -> Stats:
    """Return the statistics of a run of 10 s, all of which the caller waited."""
    busy_s = sum(step.elapsed_s - step.in_order_s for step in steps)
    stats = Stats(num_elements=100, elapsed_s=10.0, waited_s=10.0, steps=steps, busy_s=busy_s)
    return replace(stats, **values)


READING = StepStats(name="reading", elapsed_s=9.0, cpu_s=0.5, waited_s=8.5)
COMPUTING = StepStats(name="Map f", elapsed_s=9.0, cpu_s=8.5)
CONTENDED = StepStats(name="Map f", elapsed_s=60.0, cpu_s=9.5, interpreter_wait_s=50.0)
NATIVE = StepStats(name="Map f", elapsed_s=60.0, cpu_s=19.0, interpreter_wait_s=40.0)
OVERLOADED = StepStats(  # measured with native code on 8 threads, at a load of 12 on two cores
    name="Map f", elapsed_s=18.6, cpu_s=1.3, waited_s=7.6, interpreter_wait_s=4.8
)
IN_ORDER = StepStats(name="Map g", elapsed_s=9.0, cpu_s=9.0, in_order_s=9.0)

CASES: list[tuple[Stats, BottleneckKind, str]] = [
    (stats_of(READING), "waiting", "reading"),
    (stats_of(COMPUTING), "computing", "Map f"),
    (stats_of(READING, COMPUTING, waited_s=4.0), "consumer", ""),
    (stats_of(READING, CONTENDED, executor="threads", num_threads=8), "interpreter", "Map f"),
    (stats_of(NATIVE, executor="threads", num_threads=8), "computing", "Map f"),
    (
        stats_of(OVERLOADED, executor="threads", num_threads=8, elapsed_s=2.2, waited_s=2.2),
        "computing",
        "Map f",
    ),
    (stats_of(COMPUTING, IN_ORDER, executor="processes", num_workers=2), "in order", "Map g"),
    (
        stats_of(COMPUTING, executor="processes", num_workers=2, busy_s=20.0, transfer_s=11.0),
        "transfer",
        "",
    ),
    (stats_of(StepStats(name="Map f", elapsed_s=0.1, cpu_s=0.1)), "overhead", ""),
    (  # busy with what belongs to no step
        stats_of(
            StepStats(name="Map f", elapsed_s=0.1, cpu_s=0.1),
            executor="processes",
            num_workers=2,
            busy_s=18.0,
        ),
        "overhead",
        "",
    ),
]


@pytest.mark.parametrize(("stats", "kind", "step"), CASES, ids=[kind for _, kind, _ in CASES])
def test_the_limit_is_named_with_a_remedy(stats: Stats, kind: BottleneckKind, step: str):
    bottleneck = find_bottleneck(stats)

    assert bottleneck is not None
    assert (bottleneck.kind, bottleneck.step) == (kind, step)
    assert step in bottleneck.explanation
    assert bottleneck.explanation.endswith(".")
    assert bottleneck.remedy.endswith(".")
    assert str(stats).splitlines()[-1] == str(bottleneck)


def test_remedies_are_those_of_the_executor():
    remedies = {
        find_bottleneck(replace(stats_of(READING), **values)).remedy  # pyright: ignore
        for values in ({}, {"executor": "threads", "num_threads": 4}, {"num_workers": 2})
    }

    assert len(remedies) == 3


def test_remedies_of_overhead_distinguish_the_start_from_the_rest():
    few = stats_of(StepStats(name="Map f", elapsed_s=0.1, cpu_s=0.1))
    starting = replace(few, first_wait_s=9.0)

    assert "Starting workers takes longer" in str(starting.bottleneck)
    assert "Batch them in the pipeline" in str(few.bottleneck)


def test_before_the_first_element_nothing_is_known():
    assert Stats().bottleneck is None
    assert str(Stats()) == Stats().summary()


def test_each_step_has_a_line():
    lines = str(stats_of(READING, COMPUTING)).splitlines()

    assert len(lines) == 5
    assert lines[2].split() == ["reading", "50%", "9.00", "s", "0.50", "s", "8.50", "s", "-", "-"]
