"""What the tests of things that go wrong share."""

import gc
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gristmill import DataLoader, IndexSampler
from gristmill._engine.executors.pools.keeper import PoolKeeper
from gristmill._engine.executors.processes import launcher
from gristmill._engine.executors.processes.pool import ProcessPool
from tests.faults.processes import (
    disregard_mappings,
    disregard_workers,
    fork_servers_of,
    kill_quietly,
    num_descriptors,
    shared_mappings,
    until,
    workers_of,
)
from tests.faults.scripts import Script

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` makes programs deaf to it


@pytest.fixture
def make_loader() -> Callable[..., DataLoader]:
    """Return a function that makes a loader over one epoch of a source, with two workers."""

    def make(source: Any, *operations: Any, **arguments: Any) -> DataLoader:
        arguments.setdefault("sampler", IndexSampler(len(source), num_epochs=1, seed=0))
        arguments.setdefault("worker_count", 2)
        return DataLoader(data_source=source, operations=operations, **arguments)

    return make


@pytest.fixture(autouse=True)
def _only_what_this_test_makes() -> None:
    gc.collect()
    disregard_mappings()
    disregard_workers()


HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note which tests fail: their tracebacks hold on to what they used."""
    report = yield
    if report.failed:
        item.stash[HAS_FAILED] = True
    return report


@pytest.fixture
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail if the test leaves a worker, thread, file descriptor or shared memory behind.

    The fork server stays: it lives as long as this process.
    """
    me = os.getpid()
    gc.collect()
    launcher.prepare()
    threads, descriptors = set(threading.enumerate()), num_descriptors(me)
    workers, mappings = set(workers_of(me)), set(shared_mappings(me))
    servers = fork_servers_of(me)
    yield
    if HAS_FAILED in request.node.stash:
        return
    gc.collect()
    try:
        until(lambda: set(workers_of(me)) <= workers, "the workers are gone")
    except AssertionError as error:
        for each in gc.get_objects():
            if isinstance(each, ProcessPool | PoolKeeper):
                error.add_note(f"{each} {vars(each)}")
        raise
    launcher.prepare()  # lets go of a server that is out of date
    until(lambda: len(fork_servers_of(me)) <= max(1, len(servers)), "one fork server is left")
    until(lambda: set(threading.enumerate()) <= threads, "the threads are gone")
    until(lambda: set(shared_mappings(me)) <= mappings, "the shared memory is unmapped")
    until(lambda: num_descriptors(me) <= descriptors, "the descriptors are closed")


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Yield a function that starts a Python program; its remains are killed after the test."""
    started: list[Script] = []

    def start(text: str, *arguments: str, **options: Any) -> Script:
        one = Script(text, tmp_path, *arguments, **options)
        started.append(one)
        return one

    yield start
    for one in started:
        kill_quietly([one.pid, *one.family])
        one.close()
