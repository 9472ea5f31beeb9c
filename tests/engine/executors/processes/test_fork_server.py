"""The fork server starts workers, reports how they end, and names what it cannot import."""

import importlib
import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gristmill._engine.executors.processes import fork_server as module
from gristmill._engine.executors.processes.fork_server import (
    MAX_REFUSALS,
    ForkedProcess,
    ForkServer,
    Refusal,
    fork_server,
    left_out,
    why_not_forked,
)
from gristmill._engine.executors.processes.fork_server_main import REQUEST_BYTES
from gristmill._engine.executors.processes.inherited_state import worker_environment
from tests.faults.processes import children_of, is_alive, until


@pytest.fixture(autouse=True)
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[Refusal]:
    """Keep what these tests provoke from the servers of other tests."""
    refusals: list[Refusal] = []
    monkeypatch.setattr(module, "_refusals", refusals)
    return refusals


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ForkServer]]:
    """Yield the list of servers, which begins empty."""
    servers: list[ForkServer] = []
    monkeypatch.setattr(module, "_servers", servers)
    yield servers
    for server in servers:
        server.end()


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer(worker_environment())
    yield server
    server.end()


class Asked:
    """A worker that was asked for, and the ends of its socket and lifeline."""

    def __init__(self, server: ForkServer, *modules: str) -> None:
        self.socket, theirs = socket.socketpair()
        lifeline, self.lifeline = os.pipe()
        self.process: ForkedProcess = server.fork(theirs.fileno(), lifeline, modules)
        theirs.close()
        os.close(lifeline)

    def end(self) -> int | None:
        os.close(self.lifeline)
        self.socket.close()
        code = self.process.wait()
        self.process.close()
        return code


def test_a_worker_is_a_child_of_the_server(server: ForkServer):
    worker = Asked(server)

    assert is_alive(worker.process.pid)
    assert worker.process.pid not in children_of(os.getpid())
    assert worker.process.refusal is None
    assert worker.end() in (0, 1, -9)  # it sees that its socket or its lifeline is closed


def test_the_server_reports_the_signal_that_ended_a_worker(server: ForkServer):
    worker = Asked(server)
    os.kill(worker.process.pid, 11)

    assert worker.process.wait() == -11
    assert worker.process.wait() == -11
    worker.end()


def test_threads_that_wait_for_one_worker_all_learn_how_it_ended(server: ForkServer):
    for _ in range(20):
        worker = Asked(server)
        os.kill(worker.process.pid, 9)
        with ThreadPoolExecutor(4) as threads:
            codes = [threads.submit(worker.process.wait) for _ in range(4)]
        assert [code.result() for code in codes] == [-9] * 4
        worker.end()


def test_the_end_of_workers_that_are_killed_at_the_same_time_is_always_reported(
    server: ForkServer,
):
    """A signal may reach the server between two system calls."""
    for _ in range(100):
        workers = [Asked(server) for _ in range(2)]
        for worker in workers:
            assert worker.process.pid
        for worker in workers:
            os.kill(worker.process.pid, 9)
        assert [worker.end() for worker in workers] == [-9, -9]


def test_workers_are_in_process_groups_of_their_own(server: ForkServer):
    workers = [Asked(server) for _ in range(2)]

    def groups() -> set[int]:
        return {os.getpgid(worker.process.pid) for worker in workers}

    until(lambda: groups() == {worker.process.pid for worker in workers}, "each has its own")
    for worker in workers:
        worker.end()


def test_a_retired_server_is_not_used_and_ends_with_its_last_worker(server: ForkServer):
    worker = Asked(server)
    assert worker.process.pid

    server.retire()

    assert not server.is_usable
    assert not server.has_ended
    worker.end()
    until(lambda: server.has_ended, "the server has ended")


def test_a_hazard_retires_the_server_and_is_left_out_of_the_next(
    servers: list[ForkServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "opens_a_file.py").write_text("FILE = open(__file__)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    first = fork_server(worker_environment())
    assert first is not None
    worker = Asked(first, "opens_a_file")

    assert worker.process.pid == 0
    assert worker.process.refusal == Refusal(
        ("opens_a_file",), "opens_a_file leaves files open when it is imported"
    )
    worker.end()
    assert left_out() == {"opens_a_file": "opens_a_file leaves files open when it is imported"}
    second = fork_server(worker_environment())
    assert second is not None
    assert second is not first
    again = Asked(second, "opens_a_file")
    assert again.process.pid
    again.end()


def test_an_environment_has_one_server(servers: list[ForkServer]):
    environment = worker_environment()
    first = fork_server(environment)

    assert fork_server(dict(environment)) is first
    second = fork_server(environment | {"COLOUR": "red"})
    assert second is not first
    assert first is not None
    assert not first.is_usable
    until(lambda: first.has_ended, "the server that is out of date has ended")
    assert fork_server(environment | {"COLOUR": "red"}) is second
    assert servers == [second]


def test_a_server_that_another_thread_retires_counts_as_gone(server: ForkServer):
    """`launch` then starts an interpreter, as if the server had died."""
    server.retire()

    with pytest.raises(ConnectionError):
        server.fork(1, 1, [])


def test_a_server_with_the_old_code_of_a_module_is_replaced(
    servers: list[ForkServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "edited.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    environment = worker_environment()
    first = fork_server(environment)
    edited = importlib.import_module("edited")
    assert fork_server(environment) is first

    importlib.reload(edited)

    assert fork_server(environment) not in (first, None)


def test_numpy_that_starts_threads_is_why_nothing_is_forked(refusals: list[Refusal]):
    assert why_not_forked() is None
    refusals.append(Refusal(("numpy",), "numpy starts threads when it is imported"))

    assert why_not_forked() == "NumPy starts threads; OPENBLAS_NUM_THREADS=1 prevents that"
    assert fork_server(worker_environment()) is None


def test_after_many_refusals_nothing_is_forked(refusals: list[Refusal]):
    refusals += [Refusal((f"m{n}",), f"m{n} starts threads") for n in range(MAX_REFUSALS - 1)]
    modules = [*(module for refusal in refusals for module in refusal.modules), "last", "numbers"]
    assert why_not_forked(modules) is None

    refusals.append(Refusal(("last",), "last imports JAX"))

    reason = why_not_forked(modules)
    assert reason is not None
    assert reason.startswith("m0 starts threads; m1")
    assert reason.endswith("last imports JAX")
    assert why_not_forked(["numbers", "m3"]) is None  # another plan has only one of them


def test_a_module_that_kills_the_server_is_left_out_of_the_next(
    servers: list[ForkServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "exits.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    environment = worker_environment()
    first = fork_server(environment)
    assert first is not None
    fine = Asked(first, "wave")
    assert fine.process.pid

    worker = Asked(first, "exits", "wave")

    reason = "the fork server died while it imported exits"
    assert worker.process.pid == 0
    assert worker.process.refusal == Refusal(("exits",), reason)
    assert left_out() == {"exits": reason}
    worker.end()
    fine.end()
    second = fork_server(environment, ["exits"])
    assert second not in (first, None)
    assert second is not None
    again = Asked(second, "exits", "wave")
    assert again.process.pid
    again.end()


def test_a_request_fits_a_packet_however_many_modules_there_are():
    names = [f"package.module_{number:06}" for number in range(20_000)]

    chosen = module._within_limit(names)

    assert 1000 < len(chosen) < 20_000
    assert len(json.dumps(chosen)) <= REQUEST_BYTES
