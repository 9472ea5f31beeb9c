"""The timeline of a run: bounded, and complete for the last blocks under each executor."""

import gc
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

import gristmill as gm
from gristmill._engine.executors.serialization.block_codec import BlockTimes
from gristmill._metrics.counters import Counters, StatsTotal
from gristmill._metrics.record_json import MAX_SENT_SPANS, spans_from_json, spans_to_json
from gristmill._metrics.step_time import StepTime, computing
from gristmill._metrics.timeline import (
    DEVICE_TRACK,
    MAX_BLOCKS,
    PLACE,
    WAIT,
    StepSpan,
    Timeline,
    Track,
    Work,
)
from tests.faults.processes import until
from tests.policies import fixed_blocks, with_policy

MAIN = Track("", "MainThread", 1)


def busy(number: int) -> int:
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass
    return number


def test_steps_of_a_block_follow_each_other():
    timeline = Timeline(["reading", "Map f", "Map g"])
    timeline.add(Work(MAIN, 5.0, (computing(1.0), StepTime(), computing(0.5)), transfer_s=0.25))

    assert [(span.name, span.began_at, span.elapsed_s) for span in timeline.spans()] == [
        ("reading", 5.0, 1.0),
        ("Map g", 6.0, 0.5),
        ("copy into shared memory", 6.5, 0.25),
    ]


def test_waiting_and_placing_have_names():
    timeline = Timeline()
    for number in (WAIT, PLACE):
        timeline.add_step(number, StepTime(1.0), ended_at=3.0)

    assert [(span.name, span.began_at) for span in timeline.spans()] == [
        ("wait for data", 2.0),
        ("place on devices", 2.0),
    ]


def test_only_the_last_blocks_are_kept():
    timeline = Timeline(["reading"])
    for number in range(MAX_BLOCKS + 5):
        timeline.add(Work(MAIN, float(number), (computing(1.0),)))

    spans = timeline.spans()
    assert len(spans) == len(timeline) == MAX_BLOCKS
    assert spans[0].began_at == 5.0


def test_a_loader_keeps_the_timelines_of_its_last_iterators():
    class Iterator:
        """Stands for an iterator."""

    total = StatsTotal()
    for _ in range(4):
        iterator, counters = Iterator(), Counters(["reading"])
        total.watch(iterator, counters)
        for number in range(MAX_BLOCKS // 2):
            counters.record_work([Work(MAIN, float(number), (computing(1.0),))])
        del iterator
    gc.collect()

    assert [len(timeline) for timeline in total.timelines()] == [MAX_BLOCKS // 2] * 2


def test_steps_of_another_plan_below_have_their_numbers():
    counters = Counters(["reading a", "reading b", "Map f"])
    counters.record_work([Work(MAIN, 1.0, (computing(1.0), computing(1.0)))], first=1)

    assert [span.name for span in counters.timeline.spans()] == ["reading b", "Map f"]


def test_the_threads_of_a_worker_are_named_after_it():
    thread = Track("", "gristmill-read-1", 123)
    times = BlockTimes(
        began_at=1.0,
        busy_s=3.0,
        transfer_s=0.5,
        worker="worker 2",
        process=77,
        work=(Work(thread, 1.0, (computing(2.5),)), Work(MAIN, 1.0, (computing(0.1),))),
    )

    work = times.in_parent()
    assert [one.track for one in work] == [
        Track("worker 2", "gristmill-read-1", 123),
        Track("worker 2", "", 77),
        Track("worker 2", "", 77),
    ]
    assert (work[2].began_at, work[2].transfer_s) == (3.5, 0.5)
    assert BlockTimes().in_parent() == ()


def test_the_clock_of_another_machine_is_shifted():
    times = BlockTimes(began_at=1.0, busy_s=2.0, work=(Work(MAIN, 1.5, ()),)).shifted(10.0)

    assert (times.began_at, times.ended_at, times.work[0].began_at) == (11.0, 13.0, 11.5)


EXECUTORS: dict[str, dict[str, Any]] = {
    "inline": {"worker_count": 0, "read_options": gm.ReadOptions(num_threads=0)},
    "threads": {"worker_count": 0, "read_options": gm.ReadOptions(num_threads=3)},
    "processes": {"worker_count": 2, "read_options": gm.ReadOptions(num_threads=1)},
    "processes with threads": {"worker_count": 1, "read_options": gm.ReadOptions(num_threads=4)},
}


def sleep(number: int) -> int:
    time.sleep(0.001)
    return number


@pytest.mark.parametrize("name", EXECUTORS)
def test_the_timeline_agrees_with_the_statistics(name: str):
    step = sleep if "threads" in name else busy
    loader = gm.load(
        range(160), num_epochs=1, batch_size=4, transformations=[step], **EXECUTORS[name]
    )
    started_at = time.perf_counter()
    with iter(loader) as iterator:
        assert len(list(iterator)) == 40
        spans = [span for timeline in iterator._timelines() for span in timeline.spans()]
        stats = iterator.stats()
    ended_at = time.perf_counter()
    loader.close()

    for one in stats.steps:
        elapsed_s = sum(span.elapsed_s for span in spans if span.name == one.name)
        assert elapsed_s == pytest.approx(one.elapsed_s, rel=1e-6, abs=1e-9)
    waited_s = sum(span.elapsed_s for span in spans if span.name == "wait for data")
    assert waited_s == pytest.approx(stats.waited_s)
    assert all(started_at <= span.began_at for span in spans)
    assert all(span.began_at + span.elapsed_s <= ended_at + 1e-3 for span in spans)
    workers = {span.track.worker for span in spans} - {""}
    assert bool(workers) == ("processes" in name)
    if name == "processes with threads":
        assert any(span.track.thread.startswith("gristmill-read") for span in spans)


class WaitsFrom:
    """A step that passes records through up to one, and then waits until a pipe is opened."""

    def __init__(self, number: int, pipe: Path) -> None:
        self.number, self.pipe = number, pipe

    def __call__(self, record: int) -> int:
        if record >= self.number:
            self.pipe.read_bytes()
        return record


def test_what_workers_have_begun_is_shown_also_after_the_run_was_stopped(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    given = gm.load(
        range(64), num_epochs=1, transformations=[WaitsFrom(8, pipe)], **EXECUTORS["processes"]
    )
    loader = with_policy(given, fixed_blocks(1))
    iterator = iter(loader)
    assert [next(iterator) for _ in range(4)] == list(range(4))

    def spans() -> list[StepSpan]:
        return [span for timeline in loader._timelines() for span in timeline.spans()]

    def unfinished() -> set[Track]:
        return {span.track for span in spans() if span.name == "unfinished block"}

    def num_blocks() -> int:
        return sum(span.name == "Map WaitsFrom" for span in spans())

    until(lambda: len(unfinished()) == 2, "both workers are shown with the blocks they have begun")
    until(lambda: num_blocks() > 4, "blocks that were computed and not taken are shown")
    assert {track.worker for track in unfinished()} == {"worker 0", "worker 1"}
    before, num_shown = time.perf_counter(), num_blocks()
    iterator.close()
    assert len(unfinished()) == 2
    assert max(span.began_at + span.elapsed_s for span in spans()) >= before
    del iterator
    gc.collect()
    assert len(unfinished()) == 2
    assert num_blocks() >= num_shown
    given.close()


def test_other_processes_get_two_seconds_of_all_timelines_in_a_bounded_number_of_spans():
    first, second = Timeline(["reading", "Map f"]), Timeline()
    for number in range(400):
        work = Work(MAIN, 0.01 * number, (computing(0.004), computing(0.005)))
        first.add(work)
    second.add_step(PLACE, StepTime(1.0), ended_at=4.0, track=DEVICE_TRACK)
    spans = spans_from_json(json.loads(json.dumps(spans_to_json([first, second]))))
    assert {span.name for span in spans} == {"reading", "Map f", "place on devices"}
    assert spans[0].began_at == pytest.approx(1.995, abs=0.01)
    assert max(span.began_at + span.elapsed_s for span in spans) == pytest.approx(4.0)

    many = [Timeline([f"step {number}"]) for number in range(4)]
    for timeline in many:
        for number in range(MAX_BLOCKS):
            timeline.add(Work(MAIN, 1e-4 * number, (computing(1e-5),)))
    assert len(spans_from_json(spans_to_json(many))) == MAX_SENT_SPANS


@pytest.mark.parametrize(
    "record", [None, [], [[], [], 0.0, [[0, 0, 1, 1, 1, 1]]], [[[1, 2, 3]], [], 0.0, []]]
)
def test_spans_of_something_else_are_refused(record: object):
    with pytest.raises(gm.errors.StateError, match="is not one that this version of gristmill"):
        spans_from_json(record)


def test_a_stateful_step_is_counted_without_the_steps_below_it():
    ds = gm.MapDataset.range(200).to_iter_dataset(gm.ReadOptions(num_threads=0)).map(busy)
    with iter(gm.experimental.WindowShuffleIterDataset(ds, window_size=8, seed=0)) as iterator:
        assert len(list(iterator)) == 200
        steps = {step.name.partition("(")[0]: step for step in iterator.stats().steps}

    shuffle = steps["WindowShuffle"]
    assert 0 < shuffle.elapsed_s < steps["Map busy"].elapsed_s
    assert shuffle.in_order_s == shuffle.elapsed_s
