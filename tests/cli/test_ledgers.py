"""`gristmill diff`, `gristmill audit` and `gristmill replay --ledger` on the ledgers of runs."""

import importlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import Batch, load
from gristmill._checkpoint.ledger_diff import compare_ledgers
from gristmill._checkpoint.ledger_file import find_ledgers, read_ledger
from gristmill._cli.main import main

MODULE = """
import numpy as np
import gristmill

images = np.arange(40 * 8 * 8 * 3).astype(np.uint8).reshape(40, 8, 8, 3)
labels = np.arange(40)
source = gristmill.ArraySource({"image": images, "label": labels})
loader = gristmill.load(source, shuffle=True, seed=3, num_epochs=1, batch_size=4)
other = gristmill.load(source, shuffle=True, seed=4, num_epochs=1, batch_size=4)
changed = gristmill.load(
    gristmill.ArraySource({"image": images + np.uint8(1), "label": labels}),
    shuffle=True, seed=3, num_epochs=1, batch_size=4,
)
"""

Gristmill = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gristmill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Gristmill]:
    """A function that runs a command in a folder with a module `ledgered`, and a run in `run`."""
    (tmp_path / "ledgered.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    ledgered: Any = importlib.import_module("ledgered")

    with iter(ledgered.loader) as iterator:
        iterator.keep_ledger("run")
        for _ in islice(iterator, 8):
            pass
    capsys.readouterr()

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    yield run
    sys.modules.pop("ledgered", None)


def test_an_audit_lists_what_came(gristmill: Gristmill):
    status, shown, _ = gristmill("audit", "run", "--pipeline", "ledgered:loader")

    assert status == 0
    assert "8 steps of 1 shard" in shown
    assert "source 0, epoch 0: 32 of 40 records came; 8 are to come" in shown
    assert "Each record came as often as it should." in shown


def test_an_audit_with_a_problem_fails(gristmill: Gristmill):
    (path,) = find_ledgers(Path("run"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], *lines[4:]]))

    status, shown, _ = gristmill("audit", str(path), "--pipeline", "ledgered:loader")

    assert status == 1
    assert "PROBLEM: shard 0 of 1: there is no line of step 2" in shown
    assert "PROBLEM: source 0, epoch 0: 4 records" in shown


def test_states_are_audited(gristmill: Gristmill, tmp_path: Path):
    ledgered: Any = importlib.import_module("ledgered")

    (tmp_path / "state.json").write_bytes(ledgered.loader.from_step(9).get_state())

    status, shown, _ = gristmill("audit", "state.json", "--pipeline", "ledgered:loader")

    assert (status, "36 of 40 records came" in shown) == (0, True)


def test_a_replay_verifies_all_steps_or_one(gristmill: Gristmill):
    assert gristmill("replay", "ledgered:loader", "--ledger", "run")[:2] == (
        0,
        "run/shard_0-of-1.jsonl: all 8 steps are bit-identical\n",
    )
    status, shown, _ = gristmill("replay", "ledgered:loader", "--ledger", "run", "--step", "5")
    assert status == 0
    assert "step 5, bit-identical to the ledger" in shown
    assert shown.count("row ") == 4


def test_a_replay_with_other_data_fails(gristmill: Gristmill):
    status, shown, _ = gristmill("replay", "ledgered:changed", "--ledger", "run")

    assert status == 1
    assert "step 0 differs: the element is not that of the run" in shown


def test_runs_with_other_shards_are_not_compared(gristmill: Gristmill, tmp_path: Path):
    for shard in range(2):
        shutil.copytree("run", "more", dirs_exist_ok=True)
        Path("more/shard_0-of-1.jsonl").rename(f"more/shard_{shard}-of-2.jsonl")

    for runs in (("run", "more"), ("more", "run")):
        status, _, error = gristmill("diff", *runs)
        assert (status, "The runs have other shards" in error) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("replay", "ledgered:loader", "--ledger", "run", "--step", "9"), "has no step 9"),
        (("replay", "ledgered:loader", "--ledger", "nowhere"), "does not exist"),
        (("replay", "ledgered:loader", "--ledger", "run", "--shard", "1/2"), "has no ledger"),
        (("replay", "ledgered:loader"), "`--step` is missing"),
        (("replay", "ledgered:other", "--ledger", "run"), "belongs to another order"),
        (("audit", "run", "--pipeline", "ledgered:other"), "belongs to another order"),
        (("audit", "nowhere", "--pipeline", "ledgered:loader"), "does not exist"),
        (("diff", "run", "nowhere"), "does not exist"),
        (("state", "run"), "is the ledger of a run, not a state. Compare it"),
        (("state", "run/shard_0-of-1.jsonl"), "a pipeline by `gristmill replay --ledger`"),
        (("diff", "run", "ledgered.py"), "not a ledger"),
    ],
)
def test_what_does_not_fit_is_explained(
    gristmill: Gristmill, arguments: tuple[str, ...], message: str
):
    status, _, error = gristmill(*arguments)

    assert status == 1
    assert message in error


def test_a_page_shows_the_images_and_their_records(gristmill: Gristmill, tmp_path: Path):
    status, shown, _ = gristmill(
        "replay", "ledgered:loader", "--step", "3", "--ledger", "run", "--html", "page.html"
    )

    page = (tmp_path / "page.html").read_text()
    assert (status, shown) == (0, "step 3 is in page.html\n")
    assert page.count("data:image/png;base64,") == 4
    assert "bit-identical to the ledger" in page
    assert page.count("record ") >= 4
    assert "<script" not in page


def run_of(folder: Path, *operations: Any, seed: int = 1, size: int = 4) -> Path:
    numbers = np.arange(40)
    steps = [*operations, Batch(size)]
    loader = load(numbers, shuffle=True, seed=seed, num_epochs=1, transformations=steps)
    with iter(loader) as iterator:
        iterator.keep_ledger(folder)
        list(iterator)
    (path,) = find_ledgers(folder)
    return path


def scale(by: int, name: str = "scaled") -> Callable[[int], int]:
    def scaled(x: int) -> int:
        return x * by

    scaled.__qualname__ = name
    return scaled


def test_equal_runs_do_not_differ(gristmill: Gristmill, tmp_path: Path):
    one, other = run_of(tmp_path / "a"), run_of(tmp_path / "b")

    status, shown, _ = gristmill("diff", str(one.parent), str(other.parent))

    assert status == 0
    assert "10 steps are equal, from 0 to 9" in shown


@pytest.mark.parametrize(
    ("one", "other", "step", "cause"),
    [
        ({"seed": 1}, {"seed": 2}, 0, "another seed: 1 and 2"),
        ({"by": 1}, {"by": 3}, 0, "other code in Map scaled"),
        ({"by": 3}, {"by": 3, "name": "other"}, None, "other steps"),
        ({"size": 4}, {"size": 5}, 0, "other steps"),
    ],
)
def test_the_first_step_that_differs_is_explained(
    one: dict[str, Any], other: dict[str, Any], step: int | None, cause: str, tmp_path: Path
):
    paths = []
    for name, options in (("a", one), ("b", other)):
        by, label = options.pop("by", 2), options.pop("name", "scaled")
        paths.append(run_of(tmp_path / name, scale(by, label), **options))

    difference = compare_ledgers(*map(read_ledger, paths))

    assert difference.step == step
    assert any(cause in line for line in difference.lines)


def test_other_data_and_other_versions_are_distinguished(tmp_path: Path):
    path = run_of(tmp_path / "a")
    lines = path.read_text().splitlines()
    line = {**json.loads(lines[5]), "batch": "00000000"}
    changed = tmp_path / "b.jsonl"
    changed.write_text("\n".join([*lines[:5], json.dumps(line), *lines[6:]]) + "\n")

    difference = compare_ledgers(read_ledger(path), read_ledger(changed))
    assert difference.step == 4
    assert "the elements differ, at the same position" in difference.lines[0]
    assert "the source returned other data" in difference.lines[1]

    start = json.loads(lines[0])
    start["versions"]["numpy"] = "1.0"
    changed.write_text("\n".join([json.dumps(start), *lines[1:5], json.dumps(line)]) + "\n")
    difference = compare_ledgers(read_ledger(path), read_ledger(changed))
    assert f"  another version of numpy: {np.__version__} and 1.0" in difference.lines


def test_excluded_records_explain_a_difference(tmp_path: Path):
    path = run_of(tmp_path / "a")
    with iter(
        load(np.arange(40), shuffle=True, seed=1, num_epochs=1, transformations=[Batch(4)])
    ) as iterator:
        iterator.keep_ledger(tmp_path / "b")
        next(islice(iterator, 3, None))
        iterator.exclude(records=range(40)[::2])
        list(iterator)

    difference = compare_ledgers(read_ledger(path), read_ledger(find_ledgers(tmp_path / "b")[0]))

    assert difference.step == 4
    assert "  other excluded records: 0 and 20 of them" in difference.lines


def test_a_shorter_run_differs_from_its_end_on(tmp_path: Path):
    path = run_of(tmp_path / "a")
    short = tmp_path / "b.jsonl"
    short.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]) + b'{"ste')

    difference = compare_ledgers(read_ledger(path), read_ledger(short))

    assert difference.step == 3
    assert difference.lines == [
        "3 steps are equal, from 0 to 2",
        "7 steps are only in the first run, from 3 on",
    ]
