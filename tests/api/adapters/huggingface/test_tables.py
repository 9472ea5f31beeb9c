"""A worker opens the table of a dataset from its fragments, without the `datasets` package."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from gristmill._api.adapters.huggingface.tables import (
    FileFragment,
    MemoryFragment,
    join_fragments,
    split_table,
)
from tests.api.adapters.huggingface.hf_samples import (
    MAKERS,
    nested,
    on_disk,
    rows,
    source_of,
)

from datasets import Dataset, concatenate_datasets  # isort: skip

WORKER = """
import pickle, sys
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        source = pickle.load(file)
    print([row["id"].item() for row in source.__getitems__(range(len(source)))])
print([name for name in ("datasets", "pandas", "torch") if name in sys.modules])
"""


def test_a_worker_needs_no_datasets_for_columns_that_are_not_delegated(tmp_path: Path):
    names = ["memory", "shuffled", "files", "shuffled files", "slice of files", "files and memory"]
    names += ["added column", "other columns of files", "numpy", "numbers in files"]
    lines: list[str] = []
    for name in names:
        dataset = MAKERS[name](tmp_path / name)
        (tmp_path / f"{name}.pickle").write_bytes(cloudpickle.dumps(source_of(dataset)))
        lines.append(f"{dataset.with_format(None)['id'][:]}\n")

    done = subprocess.run(
        [sys.executable, "-c", WORKER, *(str(tmp_path / f"{name}.pickle") for name in names)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("".join([*lines, "[]\n"]), "")


def test_a_table_is_split_into_files_and_memory_and_joined_again(tmp_path: Path):
    dataset = concatenate_datasets([on_disk(rows(), tmp_path, num_shards=2), rows(3, 100)])

    fragments = split_table(dataset.data)

    assert fragments is not None
    kinds = [type(fragment) for row in fragments for fragment in row]
    assert kinds == [FileFragment, FileFragment, MemoryFragment]
    joined = join_fragments(fragments)
    assert joined.column("id").to_pylist() == [*range(40), 100, 101, 102]
    assert joined.column("pixels").to_pylist()[1] == [[1, 1, 1], [1, 1, 1]]


def test_a_table_that_only_datasets_can_make_has_no_fragments(tmp_path: Path):
    assert split_table(on_disk(nested(), tmp_path).flatten().data) is None


def test_files_are_not_copied_into_a_pickle(tmp_path: Path):
    large = Dataset.from_dict({"x": np.zeros((1000, 100))})
    dataset = on_disk(large, tmp_path / "data").shuffle(seed=0)
    shuffled_in_memory = on_disk(large, tmp_path / "more").select(list(range(999, -1, -1)))

    assert len(pickle.dumps(source_of(dataset))) < 5_000
    assert len(pickle.dumps(source_of(shuffled_in_memory))) < 20_000  # the order of the rows


def test_a_pickle_of_a_slice_of_a_table_holds_only_its_rows():
    dataset = Dataset.from_dict({"x": np.zeros((1000, 100))}).select(range(10))
    buffers: list[Any] = []

    data = pickle.dumps(source_of(dataset), protocol=5, buffer_callback=buffers.append)

    assert len(data) + sum(buffer.raw().nbytes for buffer in buffers) < 20_000


def test_a_table_in_memory_is_pickled_out_of_band():
    dataset = Dataset.from_dict({"x": np.zeros((1000, 100))})
    buffers: list[Any] = []

    assert len(pickle.dumps(source_of(dataset), 5, buffer_callback=buffers.append)) < 5_000
