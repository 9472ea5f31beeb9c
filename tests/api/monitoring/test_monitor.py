"""A process that is watched: only on request, only by the same user, and without effect on it."""

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gristmill as gm
from gristmill._api.monitoring.explain import explain_run
from gristmill._api.monitoring.monitor import (
    MONITOR,
    Monitor,
    read_records,
    socket_path,
    watched_pids,
)
from gristmill._api.monitoring.report import ReportedRun
from gristmill._cli.main import main
from gristmill._cli.processes import read_runs
from gristmill._metrics.pages.live_page import state_html
from gristmill._metrics.record_json import stats_from_json, stats_to_json
from gristmill._metrics.timeline import Timeline
from tests.metrics.test_stats import ONE

PROGRAM = """
import sys
import gristmill as gm
loader = gm.load(range(12), num_epochs=1, batch_size=4, transformations=[abs])
list(loader)
{request}
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / f"gristmill-{os.getuid()}"


def start(request: str, **environment: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(request=request)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def watched() -> Iterator["subprocess.Popen[str]"]:
    process = start("loader.monitor()")
    yield process
    process.communicate("")


def test_top_shows_the_steps_of_another_process(
    watched: "subprocess.Popen[str]", capsys: pytest.CaptureFixture[str]
):
    assert main(["top", str(watched.pid), "--once"]) == 0

    shown = capsys.readouterr().out
    assert f"process {watched.pid}, 1 run" in shown
    assert "Map abs" in shown
    assert "3 elements" in shown


def test_the_only_process_need_not_be_named(
    watched: "subprocess.Popen[str]", capsys: pytest.CaptureFixture[str]
):
    assert watched_pids() == [watched.pid]
    assert main(["top", "--once"]) == 0
    assert str(watched.pid) in capsys.readouterr().out


def test_the_environment_can_request_it(capsys: pytest.CaptureFixture[str]):
    process = start("", GRISTMILL_MONITOR="1")
    try:
        assert main(["top", str(process.pid), "--once"]) == 0
    finally:
        process.communicate("")


def test_the_socket_is_for_the_user_only_and_ends_with_the_process(folder: Path):
    process = start("loader.monitor()")
    path = socket_path(process.pid)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    process.communicate("")
    assert not path.exists()


def test_without_a_request_there_is_nothing(folder: Path):
    process = start("import threading; assert threading.active_count() == 1")

    assert not folder.exists()
    process.communicate("")
    assert process.returncode == 0


def test_a_report_of_another_process(
    watched: "subprocess.Popen[str]", tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    page = tmp_path / "page.html"

    assert main(["report", str(watched.pid), "-o", str(page)]) == 0
    assert "Map abs" in page.read_text()
    assert f"Wrote {page}." in capsys.readouterr().out


def test_a_process_that_cannot_be_watched_is_an_error(capsys: pytest.CaptureFixture[str]):
    assert main(["top", "1", "--once"]) == 1
    assert "Process 1 cannot be watched: it has ended, belongs to" in capsys.readouterr().err


def test_no_process_is_an_error(capsys: pytest.CaptureFixture[str]):
    assert main(["top", "--once"]) == 1
    assert "No process can be watched. Start yours with" in capsys.readouterr().err


def test_one_of_several_processes_must_be_named(
    watched: "subprocess.Popen[str]", capsys: pytest.CaptureFixture[str]
):
    other = start("loader.monitor()")
    try:
        assert main(["report"]) == 1
    finally:
        other.communicate("")
    assert "Several processes can be watched" in capsys.readouterr().err


def test_the_interval_is_checked(capsys: pytest.CaptureFixture[str]):
    assert main(["top", "--interval", "0"]) == 1
    assert "`--interval` must be from 0.05 to 3600 seconds, got 0.0" in capsys.readouterr().err


def test_a_socket_of_an_earlier_process_is_replaced(folder: Path):
    folder.mkdir(mode=0o700)
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(socket_path(os.getpid())))
    stale.close()
    loader = gm.load(range(4), num_epochs=1)

    Monitor().watch(loader)

    records: Any = read_records(os.getpid())
    assert records[0]["title"] == repr(loader)


def test_a_folder_that_others_can_enter_is_refused(folder: Path):
    folder.mkdir(mode=0o700)
    folder.chmod(0o755)

    with pytest.raises(gm.errors.PlanError, match="must belong to you, and to no other user"):
        Monitor().watch(gm.load(range(4), num_epochs=1))


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        ("missing/folder", "No such file or directory"),
        ("file", "Not a directory"),
        ("x" * 120, "path too long"),
    ],
)
def test_a_folder_that_cannot_have_a_socket_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str, reason: str
):
    (tmp_path / "file").touch()
    (tmp_path / ("x" * 120)).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / base))

    with pytest.raises(gm.errors.PlanError, match=f"{reason}. Set `XDG_RUNTIME_DIR` to a folder"):
        Monitor().watch(gm.load(range(4), num_epochs=1))


def test_something_else_at_the_path_of_the_socket_is_named(folder: Path):
    (folder / f"{os.getpid()}.sock").mkdir(parents=True)
    folder.chmod(0o700)

    with pytest.raises(gm.errors.PlanError, match="cannot be used to watch processes: Is a direc"):
        Monitor().watch(gm.load(range(4), num_epochs=1))


def test_escape_sequences_of_another_process_are_text(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    step = gm.StepStats(name="Map \x1b]0;title\x07[red]", elapsed_s=1.0, cpu_s=1.0)
    stats = gm.Stats(num_elements=1, elapsed_s=1.0, waited_s=1.0, busy_s=1.0, steps=(step,))

    class Hostile(ReportedRun):
        def __repr__(self) -> str:
            return "\x1b[2J[bold]"

        def stats(self) -> gm.Stats:
            return stats

        def explain(self) -> Any:
            return explain_run(stats, is_dataset=False)

        def _timelines(self) -> list[Timeline]:
            return []

        def _settings_shown(self) -> dict[str, object]:
            return {"\x1b[31m": "\x1b[31m"}

    hostile = Hostile()
    monitor = Monitor()
    monitor.watch(hostile)
    assert main(["top", str(os.getpid()), "--once"]) == 0

    shown = capsys.readouterr().out
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert "\\x1b[2J[bold]" in shown


def test_records_survive_json():
    assert stats_from_json(json.loads(json.dumps(stats_to_json(ONE)))) == ONE


BAD: list[Any] = [
    None,
    [],
    "text",
    {},
    {**stats_to_json(ONE), "num_elements": "3"},
    {**stats_to_json(ONE), "num_elements": True},
    {**stats_to_json(ONE), "steps": [1]},
    {**stats_to_json(ONE), "history": [[1, 2]]},
]


@pytest.mark.parametrize("record", BAD)
def test_a_record_of_something_else_is_refused(record: Any):
    with pytest.raises(gm.errors.StateError, match="is not one that this version of gristmill"):
        stats_from_json(record)


def test_a_loader_that_is_gone_is_not_shown():
    monitor = Monitor()
    loader = gm.load(range(4), num_epochs=1)
    monitor.watch(loader)
    assert len(monitor.records()) == 1
    del loader

    assert monitor.records() == []


ITERATIONS = {
    "iterator of a dataset": "run = iter(gm.MapDataset.range(12).map(abs).batch(4))",
    "loop over a loader": "run = iter(gm.load(range(12), batch_size=4, transformations=[abs]))",
    "feed of a dataset": "run = gm.feed(gm.MapDataset.range(12).to_iter_dataset().map(abs).batch(4)"
    ")",
    "feed of a loader": "run = gm.feed(gm.load(range(12), batch_size=4, transformations=[abs]))",
}


@pytest.mark.parametrize("name", ITERATIONS)
def test_what_is_iterated_over_is_shown_without_a_name_of_its_loader(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    setup = ITERATIONS[name] + "; taken = [next(run) for _ in range(3)]; del loader"
    process = start(setup, GRISTMILL_MONITOR="1")
    try:
        assert main(["top", "--once"]) == 0
        shown = capsys.readouterr().out
        assert f"process {process.pid}, 1 run" in shown
        assert "Map abs" in shown
        assert "3 elements" in shown
        assert ("FeedIterator" in shown) == name.startswith("feed")
        assert main(["report", "-o", str(tmp_path / "page.html")]) == 0
        page = (tmp_path / "page.html").read_text()
        assert "placing batches on devices" in page or not name.startswith("feed")
    finally:
        process.communicate("")


def test_a_process_that_iterates_over_nothing_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    process = start("del loader", GRISTMILL_MONITOR="1")
    try:
        assert main(["top", "--once"]) == 0
        assert "which iterates over nothing at the moment" in capsys.readouterr().out
        assert main(["report", "-o", str(tmp_path / "page.html")]) == 1
        assert "iterates over nothing at the moment. Write the" in capsys.readouterr().err
    finally:
        process.communicate("")


def test_workers_of_a_watched_process_are_not_processes_to_watch(
    capsys: pytest.CaptureFixture[str],
):
    own = """
class Doubled(gm.IterDataset):
    def __iter__(self):
        return iter(self._parent.map(lambda x: 2 * x))
run = iter(Doubled(gm.MapDataset.range(12).to_iter_dataset()).mp_prefetch(
    gm.MultiprocessingOptions(num_workers=2)))
assert next(run) == 0
"""
    process = start(own, GRISTMILL_MONITOR="1")
    try:
        assert watched_pids() == [process.pid]
    finally:
        process.communicate("")


def titles(monitor: Monitor) -> list[str]:
    return [str(record["title"]).partition(":")[0] for record in monitor.records()]


def test_a_loader_stands_for_its_iterators_and_a_feed_for_its_source():
    monitor = Monitor()
    loader = gm.load(range(12), num_epochs=1, batch_size=4)
    iterator = iter(loader)
    for one in (loader, iterator):
        monitor.watch(one)
    assert titles(monitor) == ["<DataLoader"]

    feed = gm.feed(iterator)
    monitor.watch(feed)
    assert titles(monitor) == ["<FeedIterator"]

    evaluation = iter(loader)
    monitor.watch(evaluation)
    assert sorted(titles(monitor)) == ["<DataLoader", "<FeedIterator"]
    del feed, iterator
    assert titles(monitor) == ["<DataLoader"]


def test_what_is_made_of_a_monitored_loader_or_dataset_is_watched(folder: Path):
    dataset = gm.MapDataset.range(4)
    assert dataset.monitor() == str(socket_path(os.getpid()))
    other = iter(gm.MapDataset.range(5))
    iterator = iter(dataset.map(abs).batch(2))
    assert titles(MONITOR) == [
        "DatasetIterator(RangeDataSource(start=0, stop=4, step=1) -> Map abs"
        " -> Batch(2) -> ToIter(num_threads=16))"
    ]
    del iterator

    feed = gm.feed(dataset.batch(2))
    assert titles(MONITOR) == ["<FeedIterator"]
    del feed
    assert other.monitor()
    assert len(titles(MONITOR)) == 1
    del other

    loader = gm.load(range(4))
    loader.monitor()
    other_feed = gm.feed(loader.epoch(0))
    assert titles(MONITOR) == ["<FeedIterator"]
    other_feed.close()


def test_settings_and_skipped_records_are_on_the_pages_of_another_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    loader = gm.load(
        range(8),
        num_epochs=1,
        transformations=[lambda x: 1 // (x - 3)],
        on_error=gm.SkipErrors(2),
        read_options=gm.ReadOptions(num_threads=3),
    )
    list(loader)
    loader.monitor()
    assert main(["report", str(os.getpid()), "-o", str(tmp_path / "page.html")]) == 0
    loader.report(tmp_path / "own.html")
    (run,) = read_runs(os.getpid())
    live = state_html([run.report(os.getpid())])

    for page in ((tmp_path / "page.html").read_text(), (tmp_path / "own.html").read_text(), live):
        assert "Skipped records: 1" in page
        assert "ZeroDivisionError" in page
        assert "ReadOptions(num_threads=3" in page
        assert "SkipErrors(budget=2)" in page
        assert "worker_count" in page
        assert "worker_options" in page


def test_the_settings_of_a_dataset_are_those_of_its_steps():
    dataset = gm.MapDataset.range(8).to_iter_dataset(gm.ReadOptions(num_threads=3))
    dataset = dataset.mp_prefetch(gm.MultiprocessingOptions(num_workers=2))
    monitor = Monitor()
    feed = gm.feed(dataset, prefetch=5)
    monitor.watch(feed)
    (record,) = monitor.records()
    settings = record["settings"]
    assert settings["read_options"] == str(gm.ReadOptions(num_threads=3))
    assert (settings["worker_count"], settings["prefetch"]) == ("2", "5")


def test_a_long_list_of_skipped_records_is_bounded():
    def fail(number: int) -> int:
        raise ValueError("x" * 5000)

    loader = gm.load(range(300), num_epochs=1, transformations=[fail], on_error=gm.SkipErrors(300))
    list(loader)
    stats = loader.stats()
    assert stats.num_skipped == 300
    assert [one.record for one in stats.recent_skips] == list(range(100, 300))
    assert max(len(one.error) for one in stats.recent_skips) <= 300
    assert stats_from_json(json.loads(json.dumps(stats_to_json(stats)))) == stats


def test_a_dataset_writes_a_report_and_a_trace_of_a_short_run(tmp_path: Path):
    dataset = gm.MapDataset.range(8).map(abs).batch(2)
    dataset.report(tmp_path / "report.html")
    dataset.trace(tmp_path / "trace.json")
    assert "4 elements" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    with pytest.raises(gm.errors.PlanError, match="`max_s` must be greater than 0"):
        dataset.report(tmp_path / "other.html", max_s=0.0)
