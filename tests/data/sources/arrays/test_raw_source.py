"""The behaviour that sources over array files share, tested with NumPy files."""

import os
import pickle
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill._data.sources.arrays.numpy import NumpySource
from gristmill.errors import (
    ChangedFileError,
    FormatError,
    MissingFileError,
    PlanError,
    PlanTypeError,
)
from gristmill.testing._records import difference

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 7


def save(path: Path, array: Any) -> str:
    np.save(path, array)
    return str(path)


def savez(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def records_of(source: Any) -> list[Any]:
    return [source[index] for index in range(len(source))]


def test_files_are_concatenated_and_those_of_a_pattern_sorted_by_name(tmp_path: Path):
    for name, array in (("b", X[3:]), ("a", X[:3])):
        np.save(tmp_path / f"{name}.npy", array)
    source = NumpySource(tmp_path / "*.npy")
    np.testing.assert_array_equal(records_of(source), X)


def test_records_of_named_arrays_are_dicts_whatever_files_they_are_in(tmp_path: Path):
    source = NumpySource(
        {
            "x": [save(tmp_path / "0.npy", X[:7]), save(tmp_path / "1.npy", X[7:])],
            "y": save(tmp_path / "y.npy", Y),
        }
    )
    assert source.is_columnar
    for index, record in enumerate(records_of(source)):
        assert list(record) == ["x", "y"]
        assert difference({"x": X[index], "y": Y[index]}, record) is None


@pytest.mark.parametrize(
    ("array", "is_columnar"),
    [
        (X, True),
        (Y > 2, True),
        (Y.astype("datetime64[s]"), True),
        (np.array(["a", "bc"]), False),
        (X.astype(">f4"), False),
    ],
    ids=lambda value: str(getattr(value, "dtype", value)),
)
def test_numbers_and_times_in_native_byte_order_are_columnar(
    array: Any, is_columnar: bool, tmp_path: Path
):
    assert NumpySource(save(tmp_path / "x.npy", array)).is_columnar is is_columnar


@pytest.mark.parametrize("num_files", [1, 2])
@pytest.mark.parametrize("indices", [[-1, 0], [0, 20], [25]], ids=str)
def test_columns_out_of_bounds_are_an_error(num_files: int, indices: list[int], tmp_path: Path):
    arrays = np.split(X, num_files)
    source = NumpySource([save(tmp_path / f"{i}.npy", array) for i, array in enumerate(arrays)])
    with pytest.raises(IndexError, match=r"^`index` must be in \[0, 20\), got (-1|20|25)\.$"):
        source.read_columns(np.array(indices))


def test_columns_of_one_local_file_are_not_copied_before_they_are_gathered(tmp_path: Path):
    path = tmp_path / "sparse.npy"
    np.lib.format.open_memmap(path, "w+", np.uint8, (10_000_000, 1000)).flush()
    columns = NumpySource(path).read_columns(range(10_000_000))  # 10 GB, but a sparse file
    assert columns[9_999_998:].gather().shape == (2, 1000)


def test_creating_the_source_reads_nothing(tmp_path: Path):
    path = tmp_path / "x.npy"
    path.write_bytes(b"anything")
    source = NumpySource(path)
    with pytest.raises(FormatError):
        len(source)


def test_a_missing_file_is_an_error_when_the_source_is_created(tmp_path: Path):
    with pytest.raises(MissingFileError):
        NumpySource({"x": tmp_path / "x.npy"})


def test_a_pickled_source_contains_the_headers_but_no_data(tmp_path: Path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros((1000, 1000)))
    source = NumpySource(path)
    assert source[5]["x"].sum() == 0
    data = pickle.dumps(source)
    path.unlink()
    assert len(data) < 5000
    assert len(pickle.loads(data)) == 1000


@pytest.fixture
def _few_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 600, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts in /proc")
@pytest.mark.usefixtures("_few_descriptors")
def test_there_may_be_more_files_than_a_process_may_open(tmp_path: Path):
    source = NumpySource([save(tmp_path / f"{i:03}.npy", Y[:1] + i) for i in range(700)])
    assert records_of(source) == list(range(700))
    assert source.__getitems__(np.arange(700)) == list(range(700))


@pytest.mark.parametrize("is_read", [False, True])
def test_a_file_that_has_changed_is_an_error(tmp_path: Path, is_read: bool):
    path = tmp_path / "x.npy"
    np.save(path, X)
    source = NumpySource(path)
    if is_read:
        assert source[0].tolist() == [0, 1, 2]
    with path.open("r+b") as file:
        file.truncate(200)
    with pytest.raises(ChangedFileError):
        source[19]
    with pytest.raises(ChangedFileError):
        source.__getitems__([19])
    with pytest.raises(ChangedFileError):
        source.read_columns(range(20))


def test_named_arrays_must_have_the_same_length(tmp_path: Path):
    paths = {"x": save(tmp_path / "x.npy", X), "y": save(tmp_path / "y.npy", Y[:3])}
    message = r"^The arrays in `paths` must have the same length, got 'x': 20, 'y': 3\.$"
    with pytest.raises(PlanError, match=message):
        len(NumpySource(paths))


@pytest.mark.parametrize(
    ("other", "item_type"),
    [(X.astype(np.float64), r"float64\[3\]"), (X[:, :2], r"float32\[2\]"), (X[:, 0], "float32")],
    ids=["dtype", "shape", "axes"],
)
def test_files_of_another_type_than_the_first_are_an_error(
    tmp_path: Path, other: Any, item_type: str
):
    paths = [save(tmp_path / "a.npy", X), save(tmp_path / "b.npy", other)]
    message = (
        rf"^The items are {item_type}, but those of the first file are float32\[3\]\. All files of "
        r"an array must have items of the same type and shape: save it again, or create one "
        r"source per file\. \(.*b\.npy\)$"
    )
    with pytest.raises(FormatError, match=message):
        len(NumpySource(paths))


def test_files_with_other_names_than_the_first_are_an_error(tmp_path: Path):
    paths = [savez(tmp_path / "a.npz", x=X, y=Y), savez(tmp_path / "b.npz", x=X)]
    message = (
        r"^The file holds the named arrays 'x', but the first file holds the named arrays 'x', "
        r"'y'\. All files of a source must hold arrays of the same names\. \(.*b\.npz\)$"
    )
    with pytest.raises(FormatError, match=message):
        len(NumpySource(paths))


def test_files_of_one_array_and_of_named_arrays_cannot_be_mixed(tmp_path: Path):
    single, named = save(tmp_path / "a.npy", X), savez(tmp_path / "b.npz", x=X)
    with pytest.raises(FormatError, match=r"^The file holds a single array, but the first file"):
        len(NumpySource([named, single]))
    message = (
        r"^The file holds the named arrays 'x', but a single array is expected here\. Save each "
        r"array in a file of its own, or pass only such files, and without names\. "
    )
    with pytest.raises(FormatError, match=message):
        len(NumpySource([single, named]))
    with pytest.raises(FormatError, match=message):
        len(NumpySource({"x": named}))


def test_names_must_be_strings_and_there_must_be_one(tmp_path: Path):
    with pytest.raises(PlanTypeError, match=r"^`paths` must be str, got 1\. Name each array with"):
        NumpySource({1: save(tmp_path / "x.npy", X)})  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlanError, match=r"^`paths` must name at least one array, got an empty"):
        NumpySource({})


def test_its_repr_contains_the_files_without_their_folder(tmp_path: Path):
    first, second = save(tmp_path / "0.npy", X), save(tmp_path / "1.npy", X)
    assert repr(NumpySource(first)) == "NumpySource('0.npy')"
    assert repr(NumpySource([first, second])) == "NumpySource(<2 files>, '0.npy', ...)"
    assert repr(NumpySource({"x": [first, second], "y": second})) == (
        "NumpySource(x: <2 files>, '0.npy', ..., y: '1.npy')"
    )


def test_its_repr_counts_many_arrays(tmp_path: Path):
    path = save(tmp_path / "x.npy", X)
    expected = "NumpySource(0: 'x.npy', 1: 'x.npy', <30 arrays>)"
    assert repr(NumpySource({str(i): path for i in range(30)})) == expected


def test_a_structured_record_is_a_writable_copy(tmp_path: Path):
    pairs = np.array([(i, i / 2) for i in range(5)], dtype=[("a", "i1"), ("b", "f8")])
    source = NumpySource(save(tmp_path / "x.npy", pairs))
    record = source[1]
    record["a"] = 7
    assert record["a"] == 7
    assert source[1]["a"] == 1
