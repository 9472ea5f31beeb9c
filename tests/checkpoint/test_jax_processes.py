"""Several JAX processes save together: a file for each, and each resumes from its own."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, os, sys

import jax

index, count, task = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if count > 1:
    jax.distributed.initialize(f"127.0.0.1:{os.environ['PORT']}", count, index)

import numpy as np
import orbax.checkpoint as ocp

import gristmill as gm


def make_loader():
    return gm.DataLoader(
        data_source=range(48),
        sampler=gm.IndexSampler(48, shuffle=True, seed=3, num_epochs=1),
        operations=[gm.Batch(2)],
        shard_options=gm.ShardByJaxProcess(),
    )


def make_dataset():
    return gm.MapDataset.range(48).seed(1).shuffle()[index::count].to_iter_dataset().batch(2)


def taken(iterator, count):
    return [record for _ in range(count) for record in next(iterator).tolist()]


def rest(iterator):
    return [record for batch in iterator for record in batch.tolist()]


def replicate(saves):
    # Saves or restores the states as arrays that are equal in all processes.
    shared = os.environ["FOLDER"] + "-arrays"
    if saves:
        taken(loader, 2 + index), taken(dataset, 3 - index)
        found = [gm.checkpoint.replicated_state(one.get_state()) for one in (loader, dataset)]
        np.savez(f"{shared}-{index}.npz", *(leaf for one in found for leaf in one.values()))
        names = [list(one) for one in found]
        assert names == [["gristmill", "pipeline"]] * 2
        return {"equal": [[int(number) for number in one["gristmill"]] for one in found]}
    leaves = list(np.load(f"{shared}-0.npz").values())
    loader.set_state(dict(zip(["gristmill", "pipeline"], leaves[:2])))
    dataset.set_state(dict(zip(["gristmill", "pipeline"], leaves[2:])))
    return {}


loader, dataset = iter(make_loader()), iter(make_dataset())
said = {}
with ocp.CheckpointManager(os.environ["FOLDER"]) as manager:
    if task == "save":
        said["loader"], said["dataset"] = taken(loader, 2 + index), taken(dataset, 3 - index)
        manager.save(
            1,
            args=ocp.args.Composite(
                model=ocp.args.StandardSave({"weight": np.arange(4.0)}),
                loader=gm.PyGrainCheckpointSave(loader),
                dataset=gm.PyGrainCheckpointSave(dataset),
            ),
        )
    elif task.startswith("replicated"):
        said |= replicate(task == "replicated save")
    else:
        manager.restore(
            1,
            args=ocp.args.Composite(
                loader=gm.PyGrainCheckpointRestore(loader),
                dataset=gm.PyGrainCheckpointRestore(dataset),
            ),
        )
    said["loader_rest"], said["dataset_rest"] = rest(loader), rest(dataset)
with open(f"{os.environ['FOLDER']}-{task}-{index}-of-{count}.json", "w") as file:
    json.dump(said, file)
"""


def run(folder: Path, task: str, count: int) -> list[dict[str, Any]]:
    """Run the program as some JAX processes, and return what each of them prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"FOLDER": str(folder), "PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(index), str(count), task],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    try:
        errors = [process.communicate(timeout=60)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * count, "\n".join(errors)
    return [
        json.loads(Path(f"{folder}-{task}-{index}-of-{count}.json").read_text())
        for index in range(count)
    ]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("two") / "checkpoints"
    return folder, run(folder, "save", 2)


def test_each_process_has_a_file(saved: tuple[Path, list[dict[str, Any]]]):
    folder, _ = saved

    for item in ("loader", "dataset"):
        names = sorted(path.name for path in (folder / "1" / item).glob("process_*"))
        assert names == ["process_0-of-2.json", "process_1-of-2.json"]


def test_each_process_goes_on_from_its_own_place(saved: tuple[Path, list[dict[str, Any]]]):
    folder, said = saved

    for before, after in zip(said, run(folder, "restore", 2), strict=True):
        assert after["loader_rest"] == before["loader_rest"]
        assert after["dataset_rest"] == before["dataset_rest"]
    for kind in ("loader", "dataset"):
        records = [record for one in said for record in one[kind] + one[f"{kind}_rest"]]
        assert sorted(records) == list(range(48))


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_processes_goes_on_from_the_places_of_two(
    saved: tuple[Path, list[dict[str, Any]]], count: int
):
    folder, said = saved

    after = run(folder, "restore", count)

    for kind in ("loader", "dataset"):
        records = [record for one in said for record in one[kind]]
        records += [record for one in after for record in one[f"{kind}_rest"]]
        assert sorted(records) == list(range(48))


def test_two_processes_go_on_from_the_place_of_one(tmp_path: Path):
    folder = tmp_path / "checkpoints"
    (before,) = run(folder, "save", 1)

    after = run(folder, "restore", 2)

    for kind in ("loader", "dataset"):
        records = before[kind] + [record for one in after for record in one[f"{kind}_rest"]]
        assert sorted(records) == list(range(48))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_processes_have_equal_arrays_of_all_states(
    saved: tuple[Path, list[dict[str, Any]]], tmp_path: Path, count: int
):
    _, alike = saved  # which took as many elements
    folder = tmp_path / "checkpoints"

    before = run(folder, "replicated save", 2)
    after = run(folder, "replicated restore", count)

    assert before[0]["equal"] == before[1]["equal"]
    for kind in ("loader", "dataset"):
        records = [record for one in alike for record in one[kind]]
        records += [record for one in after for record in one[f"{kind}_rest"]]
        assert sorted(records) == list(range(48))
