"""Sources over `.npy` and `.npz` files return the items of the arrays that `np.load` returns."""

import gzip
import io
import re
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill import Batch, DataLoader, IndexSampler
from gristmill._data.sources.arrays.numpy import NumpySource
from gristmill.errors import (
    CorruptFileError,
    FileError,
    FormatError,
)
from gristmill.testing import SourceSuite
from gristmill.testing._records import difference

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 7
STRINGS = np.array(["a", "bc", "", "def", "gh"])
PAIRS = np.array([(i, i / 2) for i in range(5)], dtype=[("a", "i1"), ("b", "f8")])


def save(path: Path, array: Any) -> str:
    np.save(path, array)
    return str(path)


def in_store(path: str) -> str:
    """Return a URL by which fsspec reads a local file like a file in a store."""
    return f"local://{path}"


MAKERS: dict[str, Callable[[Path], NumpySource]] = {
    "one file": lambda folder: NumpySource(save(folder / "x.npy", X)),
    "files": lambda folder: NumpySource(
        [save(folder / f"{i}.npy", one) for i, one in enumerate([X[:7], X[7:7], X[7:8], X[8:]])]
    ),
    "named": lambda folder: NumpySource(
        {
            "x": [save(folder / "0.npy", X[:7]), save(folder / "1.npy", X[7:])],
            "y": save(folder / "y.npy", Y),
        }
    ),
    "npz": lambda folder: NumpySource(savez(folder / "a.npz", x=X, y=Y)),
    "several npz": lambda folder: NumpySource(
        [savez(folder / "a.npz", x=X, y=Y), savez(folder / "b.npz", y=Y[:3], x=X[:3])]
    ),
    "compressed npz": lambda folder: NumpySource(
        savez(folder / "a.npz", is_compressed=True, x=X, y=Y)
    ),
    "Fortran order": lambda folder: NumpySource(save(folder / "x.npy", np.asfortranarray(X))),
    "other byte order": lambda folder: NumpySource(save(folder / "x.npy", X.astype(">f4"))),
    "strings": lambda folder: NumpySource(save(folder / "x.npy", STRINGS)),
    "fields": lambda folder: NumpySource(save(folder / "x.npy", PAIRS)),
    "empty": lambda folder: NumpySource(save(folder / "x.npy", X[:0])),
    "empty items": lambda folder: NumpySource(save(folder / "x.npy", X[:, :0])),
    "in a store": lambda folder: NumpySource(
        {
            "x": [in_store(save(folder / f"{i}.npy", X[i::2])) for i in range(2)],
            "y": save(folder / "y.npy", Y),
        }
    ),
    "npz in a store": lambda folder: NumpySource(in_store(savez(folder / "a.npz", x=X, y=Y))),
}


def savez(path: Path, *, is_compressed: bool = False, **arrays: Any) -> str:
    (np.savez_compressed if is_compressed else np.savez)(path, **arrays)
    return str(path)


class TestNumpySource(SourceSuite):
    @pytest.fixture(params=[name for name in MAKERS if name not in ("fields", "several npz")])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> NumpySource:
        return MAKERS[request.param](tmp_path)


def records_of(source: Any) -> list[Any]:
    return [source[index] for index in range(len(source))]


def test_records_of_one_array_are_its_items(tmp_path: Path):
    assert records_of(NumpySource(save(tmp_path / "y.npy", Y))) == list(Y)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_records_of_an_npz_file_are_dicts_of_its_arrays(tmp_path: Path, is_compressed: bool):
    path = savez(
        tmp_path / "a.npz",
        is_compressed=is_compressed,
        x=X,
        flags=Y > 2,
        words=np.array(["é"] * 20),
    )
    source = NumpySource(path)
    with np.load(path) as oracle:
        arrays = {name: oracle[name] for name in oracle.files}
    for index, record in enumerate(records_of(source)):
        wanted = {name: array[index] for name, array in arrays.items()}
        assert difference(wanted, record) is None


ARRAYS = hnp.arrays(
    dtype=st.one_of(
        hnp.scalar_dtypes(),
        hnp.unicode_string_dtypes(max_len=3),
        hnp.byte_string_dtypes(max_len=3),
        st.just(np.dtype([("a", "i1"), ("é", ">f8", 2), ("c", "U2")])),
    ),
    shape=hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
)


@given(
    array=ARRAYS,
    is_fortran=st.booleans(),
    version=st.sampled_from([(1, 0), (2, 0), (3, 0)]),
    container=st.sampled_from(["npy", "npz", "compressed npz", "store"]),
    cuts=st.lists(st.integers(0, 5), max_size=2),
    data=st.data(),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_array_in_any_number_of_files_is_read_as_numpy_reads_it(
    array: Any, is_fortran: bool, version: Any, container: str, cuts: list[int], data: Any, tmp_path
):
    paths: list[str] = []
    for number, one in enumerate(np.split(array, sorted(min(c, len(array)) for c in cuts))):
        path = tmp_path / f"{number}.{container[-3:]}"
        ordered = np.asfortranarray(one) if is_fortran and container != "store" else one.copy()
        if "npz" in container:
            savez(path, is_compressed=container != "npz", only=ordered)
        else:
            with path.open("wb") as file:
                np.lib.format.write_array(file, ordered, version=version)
        paths.append(in_store(str(path)) if container == "store" else str(path))
    source = NumpySource(paths)
    assert len(source) == len(array)
    indices = data.draw(st.lists(st.integers(0, len(array) - 1), max_size=8)) if len(array) else []

    for index, record in zip(indices, source.__getitems__(indices), strict=True):
        wanted = {"only": array[index]} if "npz" in container else array[index]
        assert difference(wanted, record) is None
        assert difference(wanted, source[index]) is None


@pytest.mark.parametrize("kind", MAKERS)
def test_batches_equal_the_stacked_records(kind: str, tmp_path: Path):
    source = MAKERS[kind](tmp_path)
    if not len(source):
        return
    sampler = IndexSampler(len(source), shuffle=True, seed=1, num_epochs=1)
    rows = list(DataLoader(data_source=records_of(source), sampler=sampler, operations=[Batch(4)]))
    loader = DataLoader(data_source=source, sampler=sampler, operations=[Batch(4)])
    assert difference(rows, list(loader)) is None


def test_compressed_arrays_are_decompressed_once_for_all_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = NumpySource(savez(tmp_path / "a.npz", is_compressed=True, x=X, y=Y))
    reads: list[str] = []
    read = zipfile.ZipFile.open

    def count(self: zipfile.ZipFile, name: Any, *rest: Any) -> Any:
        reads.append(name)
        return read(self, name, *rest)

    assert len(source) == 20
    monkeypatch.setattr(zipfile.ZipFile, "open", count)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(source.__getitem__, range(20)))
    assert sorted(reads) == ["x.npy", "y.npy"]


def test_a_header_of_python_2_is_read(tmp_path: Path):
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (2L, 3L), }"
    path = tmp_path / "x.npy"
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    path.write_bytes(start + np.arange(6).tobytes())
    assert records_of(NumpySource(path))[1].tolist() == [3, 4, 5]


def test_a_header_in_unicode_is_read(tmp_path: Path):
    array = np.zeros(2, dtype=[("π", "u1")])
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version=(3, 0))
    assert NumpySource(tmp_path / "x.npy")[1].dtype.names == ("π",)


def test_a_long_header_is_read(tmp_path: Path):
    array = np.zeros(2, dtype=[(f"field_number_{i}", "u1") for i in range(500)])
    assert len(NumpySource(save(tmp_path / "x.npy", array))[1]) == 500


def bytes_of(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


COMPLETE = bytes_of(X)
HEADER = COMPLETE[: -X.nbytes]


def with_header(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


INVALID_HEADER = "has a header without a valid shape and type. Copy it again."
BAD: dict[str, tuple[bytes, type[FileError], str, int | None]] = {
    "other": (b"GIF89a..", FormatError, "does not start like a NumPy file. Pass `.npy`", 0),
    "empty": (b"", CorruptFileError, "ends inside its header. Copy it again.", 0),
    "magic": (COMPLETE[:5], CorruptFileError, "ends inside its header. Copy it again.", 5),
    "length": (COMPLETE[:9], CorruptFileError, "ends inside its header. Copy it again.", 9),
    "header": (HEADER[:-9], CorruptFileError, "ends inside its header.", len(HEADER) - 9),
    "version": (
        COMPLETE[:6] + b"\x09\x00\x01\x00\x00\x00\x00",
        FormatError,
        "has version 9.0 of the NumPy format, but only 1.0 to 3.0 are supported. Save it again",
        6,
    ),
    "no data": (HEADER, CorruptFileError, "240 bytes, float32[20, 3], but 0 follow", 128),
    "cut": (
        COMPLETE[:-1],
        CorruptFileError,
        "but 239 follow: the file is truncated. Copy it again.",
        128,
    ),
    "two arrays": (
        COMPLETE * 2,
        FormatError,
        "The array is followed by 368 more bytes, which would be lost. Save each array in a file",
        368,
    ),
    "objects": (
        bytes_of(np.array([{1}], dtype=object)),
        FormatError,
        "holds pickled Python objects. Unpickling can run any code, and reading one object",
        None,
    ),
    "scalar": (bytes_of(np.array(3)), FormatError, "The array is a scalar, but it must have", None),
    "no dict": (with_header("17"), CorruptFileError, INVALID_HEADER, 10),
    "no Python": (with_header("{'descr"), CorruptFileError, INVALID_HEADER, 10),
    "shape": (
        with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"),
        CorruptFileError,
        INVALID_HEADER,
        10,
    ),
    "no shape": (
        with_header("{'descr': '<f4', 'fortran_order': False, 'shape': 3}"),
        CorruptFileError,
        INVALID_HEADER,
        10,
    ),
    "type": (
        with_header("{'descr': 'invalid', 'fortran_order': False, 'shape': (1,)}"),
        CorruptFileError,
        INVALID_HEADER,
        10,
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("is_remote", [False, True])
def test_an_invalid_file_is_an_error_with_the_offset(tmp_path: Path, case: str, is_remote: bool):
    data, kind, message, offset = BAD[case]
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with pytest.raises(kind, match=re.escape(message)) as caught:
        len(NumpySource(in_store(str(path)) if is_remote else path))
    assert caught.value.path is not None
    assert caught.value.path.endswith("x.npy")
    assert caught.value.offset == offset


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_invalid_member_is_an_error_with_the_offset(tmp_path: Path, case: str, compression: int):
    data, kind, message, offset = BAD[case]
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("good.npy", COMPLETE)
        archive.writestr("bad.npy", data)
        start = archive.getinfo("bad.npy").header_offset
    with pytest.raises(kind, match=re.escape(message)) as caught:
        len(NumpySource(path))
    if compression == zipfile.ZIP_DEFLATED:
        assert caught.value.offset == start
    elif offset is not None:
        assert caught.value.offset == start + 30 + len("bad.npy") + offset


def test_a_compressed_npy_file_is_an_error(tmp_path: Path):
    path = tmp_path / "x.npy.gz"
    path.write_bytes(gzip.compress(COMPLETE))
    with pytest.raises(FormatError, match=r"compressed with gzip, .* Decompress it first, "):
        len(NumpySource(path))


def test_a_damaged_zip_file_is_an_error_with_the_offset(tmp_path: Path):
    complete = Path(savez(tmp_path / "a.npz", x=X)).read_bytes()
    path = tmp_path / "truncated.npz"
    path.write_bytes(complete[:-30])
    message = rf"^The zip file is damaged or truncated \(.*\)\. .*byte {len(complete) - 30}\)"
    with pytest.raises(CorruptFileError, match=message):
        len(NumpySource(path))


def test_damaged_compressed_data_are_an_error_with_the_offset(tmp_path: Path):
    path = Path(savez(tmp_path / "a.npz", is_compressed=True, x=np.arange(100_000) ** 2))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    source = NumpySource(path)
    assert len(source) == 100_000
    with pytest.raises(CorruptFileError, match=r"damaged or truncated \(.*byte 0\)"):
        source[5]


def test_a_member_that_is_not_at_its_offset_is_an_error(tmp_path: Path):
    path = Path(savez(tmp_path / "a.npz", x=X))
    data = bytearray(path.read_bytes())
    data[0:4] = b"PK\x05\x06"
    path.write_bytes(data)
    with pytest.raises(
        CorruptFileError, match=r"The member 'x\.npy' is not where the directory of the zip file"
    ):
        len(NumpySource(path))


def test_an_npz_file_without_arrays_is_an_error(tmp_path: Path):
    with pytest.raises(
        FormatError, match=r"The file holds no arrays\. Save some with `np\.savez`\."
    ):
        len(NumpySource(savez(tmp_path / "a.npz")))


def test_arrays_of_an_npz_file_must_have_the_same_length(tmp_path: Path):
    message = r"The arrays must have the same length along the first axis, got 'x': 20, 'y': 3\. "
    with pytest.raises(FormatError, match=message):
        len(NumpySource(savez(tmp_path / "a.npz", x=X, y=Y[:3])))


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_fortran_order_in_a_store_is_an_error(tmp_path: Path, suffix: str):
    path = tmp_path / f"a.{suffix}"
    (np.save if suffix == "npy" else np.savez)(path, np.asfortranarray(X))
    message = r"in Fortran order, .* Save it as `np\.ascontiguousarray\(array\)`, or copy the file"
    with pytest.raises(FormatError, match=message):
        len(NumpySource(in_store(str(path))))
