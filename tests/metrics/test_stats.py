"""The counters as data, and several of them added up."""

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from gristmill._metrics.history import Sample
from gristmill._metrics.stats import RecentSkip, Stats, StepStats, WorkerStats, add_stats

ONE = Stats(
    num_elements=10,
    output_bytes=100,
    elapsed_s=4.0,
    waited_s=1.0,
    first_wait_s=0.5,
    steps=(StepStats(name="reading", elapsed_s=0.5), StepStats(name="Map f", elapsed_s=2.0)),
    busy_s=3.0,
    transfer_s=0.5,
    place_s=0.25,
    host_wait_s=0.125,
    num_skipped=1,
    executor="processes",
    max_threads=16,
    num_workers=2,
    worker_start="forked",
    missing_workers="The Ray cluster has room for 2 of 16 actors.",
    num_restarts=3,
    num_blocks=6,
    num_blocks_ready=4,
    num_blocks_in_flight=5,
    num_positions=80,
    consumer_cpu_s=1.5,
    sum_blocks_ready=8,
    wait_counts=(3, 7),
    shared_memory_bytes=600,
    recent_skips=(RecentSkip("Map f", "ValueError: no", 3, 4),),
    history=(Sample(1.0, 5, 0.5, 4096, 2048),),
    recent=(Sample(3.5, 8, 0.75, 4096),),
    workers=(WorkerStats(name="worker 0", node="10.0.0.2", num_blocks=3),),
)


def test_the_share_of_the_time_that_was_waited():
    assert ONE.waited_share == 0.25
    assert Stats().waited_share == 0.0


def test_stats_are_values():
    assert replace(ONE) == ONE
    stats: Any = ONE
    with pytest.raises(FrozenInstanceError):
        stats.num_elements = 11


def test_what_was_done_adds_up_and_how_it_runs_is_the_lasts():
    other = replace(
        ONE, executor="inline", num_workers=0, num_blocks_ready=0, shared_memory_bytes=0
    )

    total = add_stats([ONE, other])

    assert (total.num_elements, total.output_bytes, total.num_skipped, total.num_restarts) == (
        20,
        200,
        2,
        6,
    )
    assert (total.elapsed_s, total.waited_s) == (8.0, 2.0)
    assert [step.elapsed_s for step in total.steps] == [1.0, 4.0]
    assert (total.executor, total.num_workers, total.num_blocks_ready) == ("inline", 0, 0)


def test_a_line_explains_which_workers_are_missing():
    assert "\nThe Ray cluster has room for 2 of 16 actors.\n" in f"{ONE}\n"
    assert "Ray" not in str(replace(ONE, missing_workers=""))


def test_nothing_added_up_is_nothing():
    assert add_stats([]) == Stats()


def test_added_to_nothing_it_is_itself():
    assert add_stats([Stats(), ONE]) == ONE
    assert add_stats([ONE]) == ONE


def test_every_number_is_added_up_or_taken_from_the_last():
    total = add_stats([ONE, ONE])
    for one in fields(Stats):
        assert getattr(total, one.name) != getattr(Stats(), one.name) or one.name == "num_threads"


def test_steps_of_one_name_are_added_up_each_for_itself():
    steps = (
        StepStats(name="reading", elapsed_s=1.0),
        StepStats(name="Map <lambda>", elapsed_s=2.0),
        StepStats(name="Map <lambda>", elapsed_s=5.0),
    )

    total = add_stats([Stats(steps=steps), Stats(steps=steps), Stats(steps=steps)])

    assert [step.elapsed_s for step in total.steps] == [3.0, 6.0, 15.0]


def test_steps_that_only_one_run_has_are_kept():
    first = Stats(
        steps=(StepStats(name="Map f", elapsed_s=1), StepStats(name="Batch", elapsed_s=2))
    )
    second = Stats(
        steps=(
            StepStats(name="Map f", elapsed_s=4),
            StepStats(name="Map f", elapsed_s=8),
            StepStats(name="Chain", elapsed_s=16),
        )
    )
    steps = add_stats([first, second]).steps
    assert [(step.name, step.elapsed_s) for step in steps] == [
        ("Map f", 5),
        ("Batch", 2),
        ("Map f", 8),
        ("Chain", 16),
    ]
