"""`gristmill state` and `gristmill replay` on states and pipelines as users have them."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grain
import orbax.checkpoint as ocp
import pytest

from gristmill import load
from gristmill._base.version import VERSION
from gristmill._cli.main import main
from gristmill.checkpoint import CheckpointSave

MODULE = """
import gristmill

class Odd(gristmill.Filter):
    def filter(self, element):
        return element % 2 == 1

loader = gristmill.load(range(100, 200), shuffle=True, seed=3, num_epochs=1, batch_size=4)
other = gristmill.load(range(100, 200), shuffle=True, seed=4, num_epochs=1, batch_size=4)
dataset = gristmill.MapDataset.range(10).shuffle(seed=1).to_iter_dataset().batch(2)

from_grain = gristmill.DataLoader(
    data_source=gristmill.sources.RangeDataSource(0, 100, 1),
    sampler=gristmill.IndexSampler(100, num_epochs=1),
)

mixed = gristmill.MapDataset.mix(
    [gristmill.MapDataset.range(10).shuffle(seed=1).repeat(), gristmill.MapDataset.range(50)[1::2]],
    [3, 1],
)
packed = gristmill.experimental.FirstFitPackIterDataset(
    mixed.map(lambda x: {"tokens": [x, x]}).to_iter_dataset(),
    length_struct={"tokens": 6},
    num_packing_bins=2,
)
streams = gristmill.IterDataset.mix([packed, dataset.map(lambda batch: {"tokens": batch})], [1, 1])

class OwnIterator(gristmill.DatasetIterator):
    def __next__(self):
        raise StopIteration

    def get_state(self):
        return {"line": 0}

    def set_state(self, state):
        self.line = state["line"]

class Own(gristmill.IterDataset):
    def __iter__(self):
        return OwnIterator()

own = Own()

def make():
    return loader

number = 3
"""

Gristmill = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gristmill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Gristmill]:
    """A function that runs a command in a folder with a module `training`."""
    (tmp_path / "training.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    yield run
    sys.modules.pop("training", None)


def state_file(folder: Path, num_steps: int, *, seed: int = 3) -> str:
    loader = load(range(100, 200), shuffle=True, seed=seed, num_epochs=1, batch_size=4)
    path = folder / f"state{num_steps}-{seed}.json"
    path.write_bytes(loader.from_step(num_steps).get_state())
    return str(path)


def test_a_state_is_described_in_words(gristmill: Gristmill, tmp_path: Path):
    status, shown, _ = gristmill("state", state_file(tmp_path, 5))

    assert status == 0
    assert "shard: 0 of 1" in shown
    assert "position: 20 records read" in shown
    assert "source: range(100, 200)" in shown
    assert "seed=3" in shown
    assert "skipped: 0 records" in shown
    assert "format: version 1" in shown
    assert "epoch: 0, record 20 of 100" in shown
    assert f"library: gristmill {VERSION}" in shown
    assert " ago" in shown


def test_two_states_are_shown_as_a_difference(gristmill: Gristmill, tmp_path: Path):
    first, second = state_file(tmp_path, 5), state_file(tmp_path, 9)

    status, shown, _ = gristmill("state", first, second)

    assert status == 0
    assert shown.splitlines()[1:] == [
        "  position: 20 records read -> 36 records read",
        "  epoch: 0, record 20 of 100 -> 0, record 36 of 100",
    ]
    assert "no difference" in gristmill("state", first, first)[1]


def test_a_state_restores_into_its_pipeline_and_no_other(gristmill: Gristmill, tmp_path: Path):
    path = state_file(tmp_path, 5)

    for name in ("training:loader", "training:make"):
        status, shown, _ = gristmill("state", path, "--pipeline", name)
        assert (status, shown.splitlines()[-1]) == (0, f"{path} restores into {name}.")
    status, shown, _ = gristmill("state", path, "--pipeline", "training:other")
    assert status == 1
    assert "does not restore into training:other: The state belongs to another order" in shown
    status, shown, _ = gristmill("state", path, "--pipeline", "training:own")
    assert (status, shown.splitlines()[-1]) == (
        1,
        f"{path} does not restore into training:own: KeyError('line')",
    )


def test_states_are_found_in_the_checkpoints_of_orbax(gristmill: Gristmill, tmp_path: Path):
    iterator = iter(load(range(100, 200), shuffle=True, seed=3, num_epochs=1, batch_size=4))
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:
        for step in (2, 10):
            next(iterator)
            manager.save(step, args=ocp.args.Composite(data=CheckpointSave(iterator)))
        manager.wait_until_finished()

    status, shown, _ = gristmill(
        "state", str(tmp_path / "checkpoints"), "--pipeline", "training:loader"
    )

    assert status == 0
    positions = [line for line in shown.splitlines() if "position:" in line]
    assert positions == ["  position: 4 records read", "  position: 8 records read"]
    assert "10/data/process_0-of-1.json restores into training:loader" in shown


def test_the_records_that_a_state_excludes_are_listed(gristmill: Gristmill, tmp_path: Path):
    loader = load(range(100, 200), shuffle=True, seed=3, num_epochs=1, batch_size=4)
    iterator = loader.from_step(5)
    iterator.exclude(records=range(12))
    (tmp_path / "state.json").write_bytes(iterator.get_state())

    _, shown, _ = gristmill("state", "state.json", "--pipeline", "training:loader")

    assert "excluded: 12 records: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..." in shown
    assert "state.json restores into training:loader." in shown


@pytest.mark.parametrize(
    ("make", "expected", "pipeline"),
    [
        (
            lambda: grain.DataLoader(
                data_source=grain.sources.RangeDataSource(0, 100, 1),  # pyright: ignore[reportArgumentType]
                sampler=grain.samplers.IndexSampler(100, num_epochs=1),
            ),
            "written by: Grain's DataLoader, version 2",
            "training:from_grain",
        ),
        (
            lambda: grain.MapDataset.range(10).shuffle(seed=1).to_iter_dataset().batch(2),
            "written by: Grain's Dataset API",
            "training:dataset",
        ),
    ],
)
def test_states_that_grain_has_saved_with_orbax_are_found(
    make: Callable[[], Any],
    expected: str,
    pipeline: str,
    gristmill: Gristmill,
    tmp_path: Path,
):
    iterator = iter(make())
    next(iterator)
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:
        arguments = grain.checkpoint.CheckpointSave(iterator)  # pyright: ignore
        manager.save(3, args=ocp.args.Composite(data=arguments))
        manager.wait_until_finished()

    status, shown, _ = gristmill("state", "checkpoints", "--pipeline", pipeline)

    assert expected in shown
    assert (status, f"restores into {pipeline}." in shown) == (0, True)


@pytest.mark.parametrize(
    ("pipeline", "positions"),
    [
        ("loader", ["range(100, 200): epoch 0, 12 of 100"]),
        (
            "packed",
            [
                "RangeDataSource(start=0, stop=10, step=1): epoch 0, 9 of 10",
                "RangeDataSource(start=0, stop=50, step=1): epoch 0, 7 of 50",
            ],
        ),
        (
            "streams",
            [
                "RangeDataSource(start=0, stop=10, step=1): epoch 0, 5 of 10",
                "RangeDataSource(start=0, stop=50, step=1): epoch 0, 3 of 50",
                "RangeDataSource(start=0, stop=10, step=1): epoch 0, 2 of 10",
            ],
        ),
    ],
)
def test_the_position_in_each_source_is_shown(
    pipeline: str, positions: list[str], gristmill: Gristmill, tmp_path: Path
):
    status = gristmill("replay", f"training:{pipeline}", "--step", "0")[0]
    training: Any = sys.modules["training"]
    state = getattr(training, pipeline).from_step(3).get_state()
    content = state if isinstance(state, bytes) else json.dumps(state).encode()
    (tmp_path / "state.json").write_bytes(content)

    _, shown, _ = gristmill("state", "state.json", "--pipeline", f"training:{pipeline}")

    assert status == 0
    found = [line.strip() for line in shown.splitlines() if "position in" in line]
    assert found == [f"position in {one}" for one in positions]


def test_bad_states_are_refused_with_the_reason(gristmill: Gristmill, tmp_path: Path):
    path = Path(state_file(tmp_path, 5))
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "cursor": [24]}))

    status, _, error = gristmill("state", str(path))
    assert status == 1
    assert "checksum does not match" in error
    assert str(path) in error
    path.write_text("{")
    assert "truncated" in gristmill("state", str(path))[2]
    assert "does not exist" in gristmill("state", str(tmp_path / "nothing"))[2]
    (tmp_path / "empty").mkdir()
    assert "contains no state" in gristmill("state", str(tmp_path / "empty"))[2]


def test_a_step_is_replayed_with_its_records(gristmill: Gristmill):
    loader = load(range(100, 200), shuffle=True, seed=3, num_epochs=1, batch_size=4)

    status, shown, _ = gristmill("replay", "training:loader", "--step", "7")

    assert status == 0
    assert repr(loader.at(7)) in shown
    for row, value in enumerate(loader.at(7).tolist()):
        assert f"row {row}: record {value - 100} of range(100, 200)" in shown


def test_a_step_of_another_shard_and_of_a_dataset_is_replayed(gristmill: Gristmill):
    loader = load(range(100, 200), shuffle=True, seed=3, num_epochs=1, batch_size=4)

    _, shown, _ = gristmill("replay", "training:loader", "--step", "2", "--shard", "1/3")
    assert repr(loader.at(2, shard=(1, 3))) in shown
    assert gristmill("replay", "training:dataset", "--step", "4")[1].count("record ") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("training:loader", "--step", "99"), "no element at step 99"),
        (("training:dataset", "--step", "99"), "no element at step 99"),
        (("training:loader", "--step", "-1"), "`--step` must be at least 0"),
        (("training:loader", "--step", "1", "--shard", "3"), "`--shard` must be written as 3/64"),
        (("training:dataset", "--step", "1", "--shard", "0/2"), "`--shard` needs a `DataLoader`"),
        (("training:nothing", "--step", "1"), "does not exist"),
        (("training:number", "--step", "1"), "must be a `DataLoader`"),
        (("nowhere:loader", "--step", "1"), "cannot be imported"),
        (("training", "--step", "1"), "must be written as module:name"),
    ],
)
def test_what_cannot_be_replayed_is_explained(
    gristmill: Gristmill, arguments: tuple[str, ...], message: str
):
    status, _, error = gristmill("replay", *arguments)

    assert status == 1
    assert message in error
