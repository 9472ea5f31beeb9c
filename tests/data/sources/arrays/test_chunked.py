"""The sources over HDF5 and Zarr, which share how chunks are read."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
import zarr

from gristmill import MapDataset
from gristmill._data.sources.arrays.chunked import ChunkedSource
from gristmill._data.sources.arrays.hdf5 import Hdf5Source
from gristmill._data.sources.arrays.zarr import ZarrSource
from gristmill.errors import (
    ChangedFileError,
    CorruptFileError,
    FormatError,
    MissingFileError,
)
from gristmill.testing import SourceSuite

IMAGES = np.arange(50 * 6, dtype=np.uint8).reshape(50, 2, 3)
LABELS = np.arange(50) * 7


def write_hdf5(path: Path, arrays: dict[str, Any], chunk: int | None = 8) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            shape = None if chunk is None else (min(chunk, len(array)), *np.shape(array)[1:])
            packing = None if chunk is None else "gzip"
            file.create_dataset(name, data=array, chunks=shape, compression=packing)
    return path


def write_zarr(path: Path, arrays: dict[str, Any], chunk: int | None = 8) -> Path:
    group = zarr.open_group(path, mode="w")
    for name, array in arrays.items():
        shape = (chunk or len(array), *array.shape[1:])
        group.create_array(name, data=array, chunks=shape)
    return path


Open = Callable[..., ChunkedSource]


@pytest.fixture(params=[(Hdf5Source, write_hdf5), (ZarrSource, write_zarr)], ids=["hdf5", "zarr"])
def open_written(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    kind, write = request.param

    def open_arrays(arrays: dict[str, Any], chunk: int | None = 8, **options: Any) -> ChunkedSource:
        return kind(write(tmp_path / "data", arrays, chunk), **options)

    return open_arrays


class TestChunks(SourceSuite):
    @pytest.fixture(params=[8, None, 1, 100])
    def source(self, open_written: Open, request: pytest.FixtureRequest) -> ChunkedSource:
        return open_written({"image": IMAGES, "a/label": LABELS}, request.param, cache_bytes=100)


class TestSeveralHdf5Files(SourceSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Hdf5Source:
        for number in range(3):
            part = slice(number * 10, number * 10 + 10)
            text = [f"é {i}" for i in range(10)]
            arrays = {"x": IMAGES[part], "text": text}
            with h5py.File(tmp_path / f"{number}.h5", "w") as file:
                for name, array in arrays.items():
                    file[name] = array
        return Hdf5Source(tmp_path / "*.h5")


def test_any_items_are_those_of_the_arrays(open_written: Open):
    source = open_written({"image": IMAGES, "label": LABELS})
    indices = np.random.default_rng(0).integers(0, 50, 200)
    taken = source.read_columns(indices).gather()
    np.testing.assert_array_equal(taken["image"], IMAGES[indices])
    np.testing.assert_array_equal(taken["label"], LABELS[indices])
    batch: Any = MapDataset.source(source).shuffle(seed=3).batch(50)[0]
    assert sorted(batch["label"].tolist()) == LABELS.tolist()


def test_arrays_can_be_selected(open_written: Open):
    source = open_written({"x": IMAGES, "y": LABELS[:3], "z": LABELS}, columns=["z", "x"])
    assert list(source[3]) == ["z", "x"]


def test_an_array_that_does_not_exist_is_an_error(open_written: Open):
    source = open_written({"x": IMAGES, "y": LABELS}, columns=["w"])
    with pytest.raises(FormatError, match=r"^`columns` selects 'w', but the arrays .* 'x', 'y'"):
        len(source)


def test_arrays_of_several_lengths_are_an_error(open_written: Open):
    message = r"^The arrays must have the same length .* 'x': 50, 'y': 3\. Select some .*`columns`"
    with pytest.raises(FormatError, match=message):
        len(open_written({"x": IMAGES, "y": LABELS[:3]}))


def test_a_file_without_arrays_is_an_error(open_written: Open):
    with pytest.raises(FormatError, match=r"^The file holds no array with a first axis\."):
        len(open_written({}))


def test_the_array_is_not_read_into_memory(open_written: Open):
    source = open_written({"x": np.zeros((4096, 16384), np.float32)}, 16, cache_bytes=2**20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for index in range(0, 4096, 64):
        assert not source[index]["x"].any()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 60_000  # of 268 MB


_PEAK = """
import resource, sys
import gristmill

source = gristmill.sources.Hdf5Source(sys.argv[1], cache_bytes=2**24)
assert source[0]["x"].shape == (128, 128)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for batch in gristmill.load(source, num_epochs=2, batch_size=10):
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_many_threads_do_not_keep_the_memory_of_freed_chunks(tmp_path: Path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("x", (2400, 128, 128), "f4", chunks=(10, 128, 128))
        for start in range(0, 2400, 100):
            dataset[start : start + 100] = 1
    command = [sys.executable, "-c", _PEAK, str(tmp_path / "a.h5")]
    grown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # 16 MB of chunks, and 33 MB of records read ahead. With a malloc arena per thread: 277 to 445.
    assert int(grown) < 230_000


def test_strings_and_arrays_of_several_lengths_are_records(tmp_path: Path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["text"] = ["a", "é"]
        file["fixed"] = np.array([b"ab", b"c"])
        tokens = file.create_dataset("tokens", (2,), h5py.vlen_dtype(np.int32))
        tokens[0], tokens[1] = [1, 2, 3], [4]
    source = Hdf5Source(tmp_path / "a.h5")
    record = source[1]
    assert (record["text"], record["fixed"]) == ("é", b"c")
    assert record["tokens"].tolist() == [4]


def test_data_in_other_files_are_not_read(tmp_path: Path):
    (tmp_path / "secret").write_bytes(b"12345678")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (8,), "u1", external=[(str(tmp_path / "secret"), 0, 8)])
    with pytest.raises(FormatError, match=r"^The data of '/x' are in other files\."):
        len(Hdf5Source(tmp_path / "a.h5"))
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = [1, 2]
        file["link"] = h5py.ExternalLink(str(tmp_path / "a.h5"), "/x")
    assert list(Hdf5Source(tmp_path / "b.h5")[0]) == ["x"]


def test_another_file_is_an_error(tmp_path: Path):
    (tmp_path / "a.h5").write_bytes(b"text")
    with pytest.raises(FormatError, match=r"^The file cannot be opened as HDF5: "):
        len(Hdf5Source(tmp_path / "a.h5"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(FormatError, match=r"^The folder cannot be opened as Zarr: "):
        len(ZarrSource(tmp_path / "folder"))
    with pytest.raises(MissingFileError, match=r"^There is no such folder\."):
        ZarrSource(tmp_path / "absent")


def test_a_damaged_chunk_is_an_error(tmp_path: Path):
    source = Hdf5Source(write_hdf5(tmp_path / "a.h5", {"x": np.arange(10_000) ** 3 % 977}, 10_000))
    with h5py.File(tmp_path / "a.h5") as file:
        found: Any = file["x"]
        offset = found.id.get_chunk_info(0).byte_offset
    with open(tmp_path / "a.h5", "r+b") as raw:
        raw.seek(offset)
        raw.write(b"\xff" * 100)
    source = Hdf5Source(tmp_path / "a.h5")
    with pytest.raises(CorruptFileError, match=r"^The items 0 to 10,000 of '/x' cannot be read"):
        source[0]
    folder = write_zarr(tmp_path / "a.zarr", {"x": LABELS}, 50)
    (chunk,) = (path for path in folder.rglob("*") if path.is_file() and path.name == "0")
    chunk.write_bytes(b"\xff" * 20)
    with pytest.raises(CorruptFileError, match=r"^The items 0 to 50 of 'x' cannot be read"):
        ZarrSource(folder)[0]


def test_a_changed_hdf5_file_is_an_error(tmp_path: Path):
    path = write_hdf5(tmp_path / "a.h5", {"x": LABELS})
    source = Hdf5Source(path)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(ChangedFileError):
        source[0]


def test_a_single_array_of_zarr_is_a_column(tmp_path: Path):
    zarr.create_array(tmp_path / "a.zarr", data=LABELS)
    assert ZarrSource(tmp_path / "a.zarr")[2] == {"array": 14}


def test_zarr_is_read_from_a_store(tmp_path: Path):
    folder = write_zarr(tmp_path / "a.zarr", {"x": LABELS})
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/zarr-test", recursive=True)
    assert ZarrSource("memory://zarr-test")[3] == {"x": 21}
