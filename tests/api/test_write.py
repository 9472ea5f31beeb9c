import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import MapDataset, write
from gristmill.errors import BatchError, PlanError, PlanTypeError, SourceError
from gristmill.sources import (
    ArrayRecordDataSource,
    ArraySource,
    NumpySource,
    ParquetSource,
    TarSource,
    TFRecordSource,
)
from gristmill.transforms import ParseExample


def element(x: Any) -> dict[str, Any]:
    return {"image": np.full((4, 3), x, np.uint8), "weight": np.arange(3.0) * x, "label": int(x)}


def read_back(folder: Path, format: str) -> list[Any]:
    if format == "npy":
        names = ("image", "weight", "label")
        return list(
            MapDataset.source(NumpySource({name: f"{folder}/{name}-*.npy" for name in names}))
        )
    if format == "parquet":
        return list(MapDataset.source(ParquetSource(f"{folder}/*.parquet")))
    if format == "tar":
        return list(MapDataset.source(TarSource(f"{folder}/*.tar")))
    source = {"array_record": ArrayRecordDataSource, "tfrecord": TFRecordSource}[format]
    records: Any = source(f"{folder}/*.{format}")
    return list(MapDataset.source(records).map(ParseExample.read(folder / "features.json")))


@pytest.mark.parametrize("format", ["array_record", "npy", "parquet", "tfrecord"])
def test_elements_are_read_back_as_they_were_written(tmp_path: Path, format: str) -> None:
    ds = MapDataset.range(10).map(element)
    folder = write(ds, tmp_path / "out", format=format, records_per_shard=4)
    found = read_back(folder, format)
    assert len(found) == 10
    for record, expected in zip(found, ds, strict=True):
        assert record.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(record[name], value)
            if isinstance(value, np.ndarray):
                assert record[name].dtype == value.dtype
                assert record[name].shape == value.shape
    assert not (tmp_path / "out.partial").exists()
    shards = [name for name in os.listdir(folder) if name.endswith(format) and "-of-00003" in name]
    assert len(shards) == (9 if format == "npy" else 3)


def test_tar_files_hold_bytes_strings_and_arrays(tmp_path: Path) -> None:
    ds = MapDataset.range(5).map(lambda x: {"jpg": b"x" * x, "text": "ab", "box": np.arange(x)})
    folder = write(ds, tmp_path / "shards.tar", records_per_shard=2)
    found = read_back(folder, "tar")
    assert [record["jpg"] for record in found] == [b"x" * x for x in range(5)]
    assert [record["text.txt"] for record in found] == [b"ab"] * 5
    assert found[3]["box.npy"].startswith(b"\x93NUMPY")
    assert found[3]["__key__"] == "000000003"


def test_bytes_are_written_unchanged(tmp_path: Path) -> None:
    records = [b"a", b"", b"c" * 1000]
    for format, source in (("array_record", ArrayRecordDataSource), ("tfrecord", TFRecordSource)):
        folder = write(records, tmp_path / format, format=format)
        assert list(MapDataset.source(source(f"{folder}/*.{format}"))) == records


@pytest.mark.parametrize("format", ["array_record", "npy", "parquet", "tar", "tfrecord"])
def test_elements_that_a_filter_removed_are_left_out(tmp_path: Path, format: str) -> None:
    ds = MapDataset.range(20).filter(lambda x: x % 3 == 1).map(element)
    folder = write(ds, tmp_path / "out", format=format, records_per_shard=8)
    found = read_back(folder, format)
    key = "label.npy" if format == "tar" else "label"
    assert len(found) == 7
    if format != "tar":
        assert [int(record[key]) for record in found] == [1, 4, 7, 10, 13, 16, 19]


def test_an_image_array_is_stored_as_bytes(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2000, 28, 28), dtype=np.uint8)
    source = ArraySource({"image": images, "label": np.arange(2000)})
    folder = write(source, tmp_path / "images.array_record")
    features = json.loads((folder / "features.json").read_text())
    assert features["image"] == {"dtype": "uint8", "shape": [28, 28], "is_raw": True}
    size = sum(path.stat().st_size for path in folder.glob("*.array_record"))
    assert size < 1.2 * images.nbytes + 2**17  # as varints, half of the pixels take 2 bytes
    for record, image in zip(read_back(folder, "array_record"), images, strict=True):
        np.testing.assert_array_equal(record["image"], image)
        assert record["image"].flags.writeable


PROGRAM = """
import os, signal, sys
from gristmill import MapDataset, write

stop, path, log = int(sys.argv[1]), sys.argv[2], sys.argv[3]

class Square:
    def __call__(self, x):
        if x == int(os.environ["STOP"]):
            os.kill(os.getpid(), signal.SIGKILL)
        with open(os.environ["LOG"], "a") as file:
            file.write(f"{x}\\n")
        return {"x": x * x}

write(MapDataset.range(1000).map(Square()), path, format="npy", records_per_shard=300)
"""


def test_a_killed_program_resumes_with_the_first_incomplete_shard(tmp_path: Path) -> None:
    program, log, out = tmp_path / "p.py", tmp_path / "log", tmp_path / "out"
    program.write_text(PROGRAM)

    def run(stop: int) -> int:
        log.write_text("")
        environment = {**os.environ, "STOP": str(stop), "LOG": str(log)}
        command = [sys.executable, str(program), str(stop), str(out), str(log)]
        return subprocess.run(command, env=environment).returncode

    assert run(701) == -signal.SIGKILL
    assert not out.exists()
    assert run(-1) == 0
    computed = {int(line) for line in log.read_text().split()}
    assert len(computed & set(range(300, 600))) <= 75  # only the sample, of each fourth record
    found = np.concatenate([np.load(path) for path in sorted(out.glob("x-*.npy"))])
    np.testing.assert_array_equal(found, np.arange(1000) ** 2)


def test_another_dataset_does_not_continue_a_partial_folder(tmp_path: Path) -> None:
    def fail(x: int) -> dict[str, int]:
        if x == 901:
            raise ValueError("no")
        return {"x": x}

    with pytest.raises(ValueError, match="no") as caught:
        write(MapDataset.range(1000).map(fail), tmp_path / "out", records_per_shard=300)
    assert "3 of 4 shards are complete" in "".join(caught.value.__notes__)
    with pytest.raises(PlanError, match="the dataset has changed"):
        write(
            MapDataset.range(1000).map(lambda x: {"x": -x}), tmp_path / "out", records_per_shard=300
        )


def test_an_existing_folder_is_never_overwritten(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="already exists, and nothing is overwritten"):
        write([b"a"], tmp_path)


@pytest.mark.parametrize(
    ("dataset", "options", "kind", "message"),
    [
        (MapDataset.range(3), {"format": "csv"}, PlanError, "`format` must be one of"),
        (MapDataset.range(3).repeat(), {}, PlanError, "Call `write` before `repeat`"),
        (MapDataset.range(3).to_iter_dataset(), {}, PlanTypeError, "a stream and a loader have no"),
        ([], {}, SourceError, "nothing to write"),
        ([1], {"records_per_shard": 0}, PlanError, "`records_per_shard`"),
        ([{"x/y": b"a"}], {"format": "tar"}, BatchError, "cannot be part of the name of a file"),
        ([{"__key__": "../a", "x": b"a"}], {"format": "tar"}, BatchError, "its key is"),
        ([(b"image", np.ones(2))], {"format": "npy"}, BatchError, "Return a dict in a `map`"),
        ([{"x": None}], {"format": "tar"}, BatchError, "holds bytes, strings, numbers"),
    ],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, dataset: Any, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        write(dataset, tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


def test_an_array_of_another_shape_is_refused_not_mixed_up(tmp_path: Path) -> None:
    ds = MapDataset.range(400).map(lambda x: {"x": np.zeros((2, 3) if x < 300 else (3, 2))})
    with pytest.raises(BatchError, match=r"Record 300 differs.*\[3, 2\], not float64\[2, 3\]"):
        write(ds, tmp_path / "out")
