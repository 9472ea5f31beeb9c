"""A shard counts as complete once its content and its names are on the disk."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gristmill as gm


@pytest.mark.parametrize("kind", ["npy", "parquet", "array_record"])
def test_a_plan_names_only_files_that_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
):
    synced: set[tuple[int, int]] = set()
    names_at_sync: dict[int, set[str]] = {}
    num_plans = 0
    fsync, replace = os.fsync, os.replace

    def record_sync(descriptor: int) -> None:
        fsync(descriptor)
        found = os.fstat(descriptor)
        synced.add((found.st_ino, found.st_size))
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            names_at_sync[found.st_ino] = set(os.listdir(descriptor))

    def check_plan(source: Any, target: Any) -> None:
        nonlocal num_plans
        if Path(target).name == "plan.json":
            done = json.loads(Path(source).read_text())["done"]
            folder = Path(target).parent
            for files in done.values():
                for name in files:
                    found = os.stat(folder / name)
                    assert (found.st_ino, found.st_size) in synced
                    assert name in names_at_sync[os.stat(folder).st_ino]
            num_plans += bool(done)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", check_plan)
    dataset = gm.MapDataset.range(30).map(lambda index: {"x": np.full(3, index)})
    gm.write(dataset, tmp_path / "out", format=kind, records_per_shard=10)
    assert num_plans == 3
