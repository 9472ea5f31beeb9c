"""A ledger may contain anything: commands describe or refuse it, in one line and bounded work."""

import copy
import importlib
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from gristmill._checkpoint import ledger_file
from gristmill._checkpoint.ledger_file import read_ledger
from gristmill._checkpoint.state import _checksum
from gristmill._cli.main import main
from tests.hostile.test_watching_and_states import mutate

MODULE = """
import gristmill

ordered = gristmill.load(range(100), shuffle=True, seed=0, num_epochs=2, batch_size=4)
filtered = gristmill.MapDataset.range(100).shuffle(seed=1).filter(lambda x: x % 3).to_iter_dataset()
"""

Lines = list[dict[str, Any]]


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module `hostile_ledgers`, in the current folder."""
    (tmp_path / "hostile_ledgers.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield importlib.import_module("hostile_ledgers")
    sys.modules.pop("hostile_ledgers", None)


def lines_of(pipeline: Any) -> Lines:
    """Write the ledger of a run that was taken back once, and return its lines."""
    with iter(pipeline) as iterator:
        iterator.keep_ledger("run")
        for _ in islice(iterator, 6):
            pass
        state = iterator.get_state()
        for _ in islice(iterator, 3):
            pass
        iterator.set_state(state)
        for _ in islice(iterator, 4):
            pass
    return [json.loads(line) for line in Path("run/shard_0-of-1.jsonl").read_text().splitlines()]


def write(lines: Sequence[dict[str, Any]]) -> Path:
    """Write a ledger to a folder of its own, with the right checksums of its states."""
    for line in lines:
        if isinstance(line.get("state"), dict) and "checksum" in line["state"]:
            body = {name: value for name, value in line["state"].items() if name != "checksum"}
            line["state"]["checksum"] = _checksum(body)
    path = Path("crafted", "shard_0-of-1.jsonl")
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def commands(pipeline: str) -> list[list[str]]:
    return [
        ["diff", "run", "crafted"],
        ["audit", "crafted", "--pipeline", f"hostile_ledgers:{pipeline}"],
        ["replay", f"hostile_ledgers:{pipeline}", "--ledger", "crafted"],
        ["replay", f"hostile_ledgers:{pipeline}", "--ledger", "crafted", "--step", "7"],
    ]


@pytest.mark.parametrize("name", ["ordered", "filtered"])
def test_mutated_ledgers_are_described_or_refused(
    pipelines: Any, name: str, capsys: pytest.CaptureFixture[str]
):
    lines, rng = lines_of(getattr(pipelines, name)), random.Random(0)
    statuses: set[int] = set()
    for _ in range(60):
        changed = copy.deepcopy(lines)
        number = rng.choice([0, 0, 7, rng.randrange(len(lines))])
        changed[number] = mutate(changed[number], rng)
        write(changed)
        statuses |= {main(command) for command in commands(name)}
    assert statuses == {0, 1}
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err


@pytest.mark.parametrize(
    ("number", "field", "value"),
    [
        (0, "step", -1),
        (0, "step", 1),
        (3, "step", -5),
        (0, "shard", [0, 10**9]),
        (0, "shard", [3, 2]),
        (0, "shard", [-1, 2]),
    ],
)
def test_steps_and_shards_that_cannot_be_are_refused(
    pipelines: Any, number: int, field: str, value: object, capsys: pytest.CaptureFixture[str]
):
    lines = lines_of(pipelines.ordered)
    lines[number][field] = value
    write(lines)
    for command in commands("ordered"):
        assert main(command) == 1
        assert "of the ledger is damaged" in capsys.readouterr().err


def test_the_work_for_very_many_restores_is_linear(pipelines: Any, monkeypatch: pytest.MonkeyPatch):
    start, *steps = lines_of(pipelines.ordered)
    path = write([start, *[{**start, "step": 0}, steps[0]] * 1000])
    num_changed = 0
    replace = ledger_file.replace

    def counted(*args: Any, **changes: Any) -> Any:
        nonlocal num_changed
        num_changed += 1
        return replace(*args, **changes)

    monkeypatch.setattr(ledger_file, "replace", counted)
    ledger = read_ledger(path)
    assert ([line.step for line in ledger.steps], ledger.num_replaced) == ([0], 999)
    assert num_changed < 4 * 1000


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: Path(path).symlink_to("/dev/zero")])
def test_a_ledger_without_an_end_is_not_read(
    pipelines: Any, make: Any, capsys: pytest.CaptureFixture[str]
):
    path = write(lines_of(pipelines.ordered))
    path.unlink()
    make(str(path))
    for command in commands("ordered"):
        assert main(command) == 1
        assert "The file is not a ledger." in capsys.readouterr().err
    assert main(["audit", str(path), "--pipeline", "hostile_ledgers:ordered"]) == 1
    assert "is not a regular file" in capsys.readouterr().err
