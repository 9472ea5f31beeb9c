"""C code in a worker that forks: its child holds the worker's socket, and the worker may die."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gristmill import DataLoader, WorkerOptions
from gristmill._engine.executors.processes import fork_server
from gristmill._engine.executors.processes.fork_server import Refusal
from gristmill.errors import WorkerError
from tests.faults.gates import Gate, Notes
from tests.faults.processes import gone, kill_quietly, until

MakeLoader = Callable[..., DataLoader]
pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(params=["forked", "spawned"])
def children(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Notes]:
    """Collect the children of workers, and end them after the test."""
    if request.param == "spawned":
        refusals = [Refusal(("numpy",), "numpy starts threads when it is imported")]
        monkeypatch.setattr(fork_server, "_refusals", refusals)
    notes = Notes(tmp_path / "children")
    yield notes
    pids = [int(line) for line in notes.read()]
    assert pids
    kill_quietly(pids)
    until(gone(pids), "the children of the workers are gone")


def fork_in_c(children: Notes, gate: Gate) -> None:
    """In a worker: fork as a C library does, without the functions that Python calls at a fork."""
    pid = ctypes.PyDLL(None).fork()
    if pid:
        children.write(pid)
        return
    gate.wait()
    os._exit(0)


def test_a_worker_that_forked_in_c_and_was_killed_is_replaced(
    make_loader: MakeLoader, tmp_path: Path, children: Notes
):
    gate = Gate(tmp_path / "gate")

    def die_once(element: int) -> int:
        if element == 13 and not children.read():
            fork_in_c(children, gate)
            os.kill(os.getpid(), signal.SIGKILL)
        return element

    with iter(make_loader(range(40), die_once)) as iterator:
        assert list(iterator) == list(range(40))
        assert iterator.stats().num_restarts == 1


def test_a_record_that_forks_in_c_and_kills_its_worker_each_time_is_named(
    make_loader: MakeLoader, tmp_path: Path, children: Notes
):
    gate = Gate(tmp_path / "gate")

    def die(element: int) -> int:
        if element == 13:
            fork_in_c(children, gate)
            os._exit(7)
        return element

    seen: list[int] = []
    with iter(make_loader(range(40), die)) as iterator, pytest.raises(WorkerError) as caught:
        seen.extend(iterator)

    assert seen == list(range(13))
    assert str(caught.value) == (
        "Record 13 of the source (position 13 of the stream) killed its worker 3 times, the last "
        "time by exit code 7. Leave it out of the source, or fix the code that reads it."
    )


def test_the_last_message_of_a_worker_that_forked_in_c_is_read(
    make_loader: MakeLoader, tmp_path: Path, children: Notes
):
    gate = Gate(tmp_path / "gate")

    def fail(number: int, num_workers: int) -> None:
        fork_in_c(children, gate)
        raise LookupError("no data here: " + 200_000 * "x")  # in several reads

    loader = make_loader(range(40), worker_options=WorkerOptions(worker_init_fn=fail))
    with iter(loader) as iterator, pytest.raises(LookupError, match="no data here"):
        next(iterator)


def test_idle_workers_that_forked_in_c_and_died_are_not_used_again(
    make_loader: MakeLoader, tmp_path: Path, children: Notes
):
    gate = Gate(tmp_path / "gate")
    workers = Notes(tmp_path / "workers")

    def fork(element: int) -> int:
        if not workers.read():
            workers.write(os.getpid())
            fork_in_c(children, gate)
        return element

    with make_loader(range(40), fork) as loader:
        assert list(loader) == list(range(40))
        pids = [int(line) for line in workers.read()]
        kill_quietly(pids)
        until(gone(pids), "the worker is dead")
        assert list(loader) == list(range(40))
