"""What the commands `state`, `top` and `report` read from others: an answer, or one error."""

import contextlib
import copy
import errno
import json
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rich.console

import gristmill as gm
from gristmill._api.monitoring.monitor import Monitor, read_records, socket_path
from gristmill._api.monitoring.report import write_report
from gristmill._checkpoint.state import _checksum
from gristmill._cli.main import main
from gristmill._cli.processes import WatchedRun
from gristmill._cli.top import render
from gristmill._metrics.explanation import explain_stats
from gristmill._metrics.record_json import stats_from_json, stats_to_json
from gristmill.errors import GristmillError, PlanError, StateError
from tests.hostile.test_states import JUNK, places

STRINGS = ["\x1b[31mred", "<script>alert(1)</script>", "a\nb"]


def loader() -> gm.DataLoader:
    return gm.DataLoader(
        data_source=range(100),
        sampler=gm.samplers.IndexSampler(100, shuffle=True, seed=0, num_epochs=2),
        operations=[gm.transforms.Batch(4)],
    )


def mutate(value: Any, rng: random.Random) -> Any:
    changed = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 2])):
        *parents, last = rng.choice([path for path in places(changed) if path])
        target = changed
        for key in parents:
            target = target[key]
        if rng.random() < 0.2 and isinstance(target, dict):
            del target[last]
        else:
            target[last] = copy.deepcopy(rng.choice([*JUNK, *STRINGS, float("nan"), 1e308]))
    return changed


# states


@pytest.fixture(scope="module")
def state() -> dict[str, Any]:
    iterator = iter(loader())
    next(iterator)
    iterator.exclude(records=[5, 50, 77])
    found = json.loads(iterator.get_state())
    del found["checksum"]
    return found


def signed(body: dict[str, Any]) -> bytes:
    return json.dumps({**body, "checksum": _checksum(body)}).encode()


def test_mutated_states_are_described_or_refused(
    tmp_path: Path, state: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    rng = random.Random(0)
    gathered = {key: value for key, value in state.items() if key not in ("cursor", "shard")}
    gathered["cursors"] = {"shards": 2, "each": [5]}
    path = tmp_path / "state.json"
    statuses: set[int] = set()
    for attempt in range(300):
        path.write_bytes(signed(mutate(gathered if attempt % 3 else state, rng)))
        statuses.add(main(["state", str(path)]))
    assert statuses == {0, 1}
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: Path(path).symlink_to("/dev/zero")])
def test_a_state_without_an_end_is_not_read(
    tmp_path: Path, make: Callable[[str], None], capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "process_0-of-1.json"
    make(str(path))
    for argument in (path, tmp_path):
        assert main(["state", str(argument)]) == 1
        assert "The state cannot be read: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "excluded",
    [
        [5, 5],
        [77, 5],
        [1, 1000, 2],
        [0, 10**30, 1],
        [-1],
        [99, 100],
        [True],
        [5.0],
        [None],
        [[5]],
        "abc",
        {"a": 1},
        None,
        5,
    ],
)
def test_a_list_of_excluded_records_is_checked(state: dict[str, Any], excluded: object):
    iterator = iter(loader())
    before = iterator.get_state()
    with pytest.raises(StateError):
        iterator.set_state(signed({**state, "excluded": excluded}))
    assert iterator.get_state() == before


# monitors


def test_mutated_records_of_processes_are_shown_or_refused(tmp_path: Path):
    rng = random.Random(0)
    watched = loader()
    assert len(list(watched)) == 50
    record = json.loads(json.dumps(stats_to_json(watched.stats())))
    num_shown = 0
    console = rich.console.Console(file=open(os.devnull, "w"))  # noqa: SIM115
    with contextlib.closing(console.file):
        for _ in range(300):
            try:
                stats = stats_from_json(mutate(record, rng))
            except StateError:
                continue
            num_shown += 1
            console.print(render(1, [WatchedRun(STRINGS[0], stats, {}, [])]))
            explained = explain_stats(stats)
            write_report(tmp_path / "a.html", title=STRINGS[1], explanation=explained, settings={})
            assert STRINGS[1] not in (tmp_path / "a.html").read_text()
    assert 0 < num_shown < 300


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[bytes]]:
    """Answer as this process does: with the bytes in the list, one after the other."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    chunks: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(socket_path(os.getpid())))
        server.listen(4)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        for chunk in chunks:
                            connection.sendall(chunk)

        thread = threading.Thread(target=serve)
        thread.start()
        yield chunks
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    "chunks",
    [
        [b"[" * 200_000],
        [b" " * 2**20] * 17,
        [b"\xff\xfe"],
        [],
    ],
)
def test_a_process_that_answers_otherwise_cannot_be_watched(
    answer: list[bytes], chunks: list[bytes]
):
    answer += chunks
    with pytest.raises(PlanError, match="cannot be watched"):
        read_records(os.getpid())


def test_an_answer_that_takes_too_long_is_not_awaited(answer: list[bytes]):
    answer += [b" "] * 100
    with pytest.raises(PlanError, match="cannot be watched"):
        read_records(os.getpid(), timeout_s=0.0)


@pytest.mark.parametrize("content", [b"5", b"[5]", b'[{"stats": null}]', b'[{"stats": {}}]', b"{}"])
def test_other_json_is_an_error_of_the_command(
    answer: list[bytes], content: bytes, capsys: pytest.CaptureFixture[str]
):
    answer.append(content)
    assert main(["top", str(os.getpid()), "--once"]) == 1
    assert "The record of another process" in capsys.readouterr().err


def test_a_process_can_be_watched_after_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monitor = Monitor()
    watched = loader()
    monitor.watch(watched)
    records = Monitor.records
    failures: list[Exception] = [OSError(errno.EMFILE, "Too many open files"), KeyError("x")]

    def fail_first(self: Monitor) -> object:
        if failures:
            raise failures.pop()
        return records(self)

    monkeypatch.setattr(Monitor, "records", fail_first)
    for _ in range(2):
        with pytest.raises(GristmillError):
            read_records(os.getpid())
    assert len(read_records(os.getpid())) == 1  # pyright: ignore[reportArgumentType]
    assert "could not be sent to another process" in caplog.text
