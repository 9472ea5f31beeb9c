"""Traces in Chrome's format: what viewers require of them, and what they show of real runs."""

import json
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import gristmill as gm
from gristmill._metrics.timeline import StepSpan, Track
from gristmill._metrics.trace import trace_json


def decode(number: int) -> Any:
    time.sleep(0.001)
    return np.full(10_000, number)


def events_of(path: Path) -> list[dict[str, Any]]:
    """Return the spans of a trace, after checks that hold for every trace."""
    events = json.loads(path.read_bytes())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    named = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    by_track: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
    for span in spans:
        assert span["ts"] >= 0
        assert span["dur"] > 0
        by_track[span["pid"], span["tid"]].append(span)
    assert set(by_track) == set(named)
    for track in by_track.values():
        check_nesting(track)
    return [{**span, "track": named[span["pid"], span["tid"]]} for span in spans]


def check_nesting(spans: list[dict[str, Any]]) -> None:
    """Check that spans of one track contain each other or do not overlap, as viewers require."""
    open_until: list[float] = []
    for span in spans:
        while open_until and open_until[-1] <= span["ts"] + 1.0:
            open_until.pop()
        if open_until:
            assert span["ts"] + span["dur"] <= open_until[-1] + 1.0, span
        open_until.append(span["ts"] + span["dur"])


def test_a_feed_has_tracks_for_threads_workers_and_transfers(tmp_path: Path):
    loader = gm.load(
        range(96), num_epochs=1, batch_size=4, transformations=[decode], worker_count=2
    )
    with gm.feed(loader) as batches:
        for batch in batches:
            jax.block_until_ready(batch)
        batches.trace(tmp_path / "run.json")
    loader.close()

    events = events_of(tmp_path / "run.json")
    tracks = {event["track"] for event in events}
    assert {"MainThread", "gristmill-feed", "device transfer", "worker 0"} <= tracks
    placed = [event for event in events if event["track"] == "device transfer"]
    assert [event["name"] for event in placed] == ["place on devices"] * 24
    decoded = [event for event in events if event["name"] == "Map decode"]
    assert decoded
    assert {event["pid"] for event in decoded}.isdisjoint({event["pid"] for event in placed})
    assert sum(event["args"]["waiting, ms"] for event in decoded) > 0


def test_the_trace_of_a_loader_contains_its_last_iterators(tmp_path: Path):
    loader = gm.load(range(8), num_epochs=1, batch_size=4, transformations=[decode])
    for _ in range(2):
        list(loader)
    loader.trace(tmp_path / "run.json")

    waits = [e for e in events_of(tmp_path / "run.json") if e["name"] == "wait for data"]
    assert len(waits) >= 4


def test_the_trace_of_a_dataset(tmp_path: Path):
    ds = gm.MapDataset.range(40).map(decode).to_iter_dataset()
    ds = gm.experimental.WindowShuffleIterDataset(ds, window_size=4, seed=0).batch(4)
    with iter(ds) as iterator:
        list(iterator)
        iterator.trace(tmp_path / "run.json")

    names = {event["name"].partition("(")[0] for event in events_of(tmp_path / "run.json")}
    assert {"Map decode", "WindowShuffle", "Batch", "wait for data"} <= names


def test_an_iterator_without_elements_has_an_empty_trace(tmp_path: Path):
    gm.load(range(4), num_epochs=1).trace(tmp_path / "run.json")

    assert events_of(tmp_path / "run.json") == []


def test_strings_from_data_are_shown_as_text():
    track = Track("worker \x1b[2J", "", 7)
    trace = trace_json([StepSpan(track, "Map \x1b]0;x\x07", 0.0, 1.0, 1.0, 0.0)], title="\x1b[2J")

    assert b"\\u001b" not in trace
    assert "Map \\x1b" in json.dumps(json.loads(trace)["traceEvents"], ensure_ascii=False).replace(
        "\\\\", "\\"
    )


def test_workers_of_other_machines_with_equal_numbers_are_apart():
    spans = [
        StepSpan(Track(f"worker {number}", "gristmill-read-0", 1), "Map f", 0.0, 1.0, 1.0, 0.0)
        for number in range(3)
    ]
    events = json.loads(trace_json(spans, title=""))["traceEvents"]

    assert len({(event["pid"], event["tid"]) for event in events}) == 3
    assert len({event["pid"] for event in events}) == 3


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path):
    loader = gm.load(range(4), num_epochs=1)

    with pytest.raises(gm.errors.PlanError, match=r"The trace .* cannot be written: Is a direct"):
        loader.trace(tmp_path)


def test_a_trace_can_be_written_while_the_loader_runs(tmp_path: Path):
    loader = gm.load(range(200), num_epochs=1, batch_size=4, transformations=[decode])
    with iter(loader) as iterator:
        next(iterator)
        thread = threading.Thread(target=iterator.trace, args=(tmp_path / "run.json",))
        thread.start()
        for _ in iterator:
            pass
        thread.join()

    assert events_of(tmp_path / "run.json")


def test_threads_of_one_name_share_a_track_unless_they_run_at_the_same_time():
    begins = {1: 0.0, 2: 0.5, 3: 1.0, 4: 1.5}
    spans = [
        StepSpan(Track("worker 0", "read-0", thread), "Map f", began_at, 1.0, 1.0, 0.0)
        for thread, began_at in begins.items()
    ]
    events = json.loads(trace_json(spans, title=""))["traceEvents"]

    shown = [event["tid"] for event in events if event["ph"] == "X"]
    assert shown == [1, 2, 1, 2]
    assert sum(event["name"] == "thread_name" for event in events) == 2
