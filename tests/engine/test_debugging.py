"""`breakpoint()` in a transform, and the summaries for debugging and profiling."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gristmill as gm

PROGRAM = """
import threading
import gristmill as gm

threads = set()

def decode(number):
    breakpoint()
    threads.add(threading.current_thread() is threading.main_thread())
    return number

{make}
print("got", sum(len(batch) for batch in loader), threads)
"""


def debug(make: str, **environment: str) -> str:
    """Run a program whose debugger continues at once, each time, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(make=make)],
        input="p 'at', number\nc\n" * 40,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        env={**os.environ, **environment},
        check=False,
    )
    return done.stdout


LOADER = "loader = gm.load(range(40), num_epochs=1, batch_size=4, transformations=[decode]{})"
DATASET = "loader = gm.MapDataset.range(40).map(decode).to_iter_dataset().batch(4)"


@pytest.mark.parametrize("make", [LOADER.format(""), LOADER.format(", worker_count=None"), DATASET])
def test_the_debugger_stops_at_each_record_in_the_thread_of_the_user(make: str):
    shown = debug(make)

    positions = [f"('at', {number})" for number in range(40)]
    assert [shown.count(position) for position in positions] == [1] * 40
    assert [shown.index(one) for one in positions] == sorted(shown.index(one) for one in positions)
    assert "got 40 {True}" in shown


WORKERS = LOADER.format(", worker_count=1")


def test_a_worker_explains_how_to_debug():
    shown = debug(WORKERS)

    assert "WorkerError: `breakpoint()` was called in a worker process, which has no term" in shown
    assert "pass `worker_count=0`" in shown
    assert "Map decode" in shown


def test_debug_mode_stops_instead_of_a_worker():
    shown = debug(f'gm.config.update("py_debug_mode", True)\n{WORKERS}')

    assert shown.count("'at'") == 40
    assert "got 40 {True}" in shown


def test_the_debugger_that_the_user_has_chosen_is_called_in_a_worker(tmp_path: Path):
    (tmp_path / "chosen.py").write_text("def stop(): pass\n")
    shown = debug(WORKERS, PYTHONBREAKPOINT="chosen.stop", PYTHONPATH=f"{tmp_path}:{path()}")

    assert "got 40 set()" in shown


def path() -> str:
    return os.pathsep.join(sys.path)


@pytest.fixture
def debug_mode() -> Iterator[None]:
    gm.config.update("py_debug_mode", True)
    yield
    gm.config.update("py_debug_mode", False)


def loader(**settings: Any) -> gm.DataLoader:
    sampler = gm.IndexSampler(24, num_epochs=1, seed=0)
    return gm.DataLoader(
        data_source=range(24), sampler=sampler, operations=[abs, gm.Batch(4)], **settings
    )


@pytest.mark.usefixtures("debug_mode")
def test_debug_mode_prints_a_summary_once_at_the_end(capfd: pytest.CaptureFixture[str]):
    iterator = iter(loader())
    assert len(list(iterator)) == 6
    assert list(iterator) == []
    iterator.close()

    shown = capfd.readouterr().err
    assert shown.count("6 elements") == 1
    assert "Map abs" in shown


@pytest.mark.usefixtures("debug_mode")
def test_debug_mode_prints_a_summary_of_what_was_closed_early(capfd: pytest.CaptureFixture[str]):
    with iter(loader()) as iterator:
        next(iterator)
    iter(loader()).close()  # which has done nothing

    assert capfd.readouterr().err.count("1 element\n") == 1


def profiles(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "Profile of the workers" in one.msg]


def test_profiling_logs_what_each_worker_did(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "gristmill"):
        list(loader(worker_count=1, enable_profiling=True))

    (profile,) = profiles(caplog)
    assert "6 elements" in profile
    assert "Map abs" in profile
    assert "worker 0: " in profile


@pytest.mark.parametrize(
    "settings", [{"worker_count": 1}, {"worker_count": 0, "enable_profiling": True}]
)
def test_nothing_is_logged_without_workers_or_profiling(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO, "gristmill"):
        list(loader(**settings))

    assert profiles(caplog) == []


def test_profiling_of_a_dataset(caplog: pytest.LogCaptureFixture):
    options = gm.MultiprocessingOptions(num_workers=1, enable_profiling=True)
    ds = gm.MapDataset.range(24).map(abs).to_iter_dataset().batch(4).mp_prefetch(options)
    with caplog.at_level(logging.INFO, "gristmill"):
        list(ds)

    assert len(profiles(caplog)) == 1
