"""Sources over `.npy` and `.npz` files give what `np.load` gives, item by item."""

import gzip
import io
import os
import pickle
import re
import resource
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill import Batch, DataLoader, IndexSampler
from gristmill.errors import (
    ChangedFileError,
    CorruptFileError,
    FileError,
    FormatError,
    MissingFileError,
    PlanError,
    PlanTypeError,
)
from gristmill.sources._numpy import NumpySource
from gristmill.testing import SourceSuite
from gristmill.testing._records import difference

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 7
WORDS = np.array(["a", "bc", "", "def", "gh"])
PAIRS = np.array([(i, i / 2) for i in range(5)], dtype=[("a", "i1"), ("b", "f8")])


def save(path: Path, array: Any) -> str:
    np.save(path, array)
    return str(path)


def in_store(path: str) -> str:
    """Give an address by which fsspec reads a file of this machine, as any store's."""
    return f"local://{path}"


MAKERS: dict[str, Callable[[Path], NumpySource]] = {
    "one file": lambda folder: NumpySource(save(folder / "x.npy", X)),
    "files": lambda folder: NumpySource(
        [save(folder / f"{i}.npy", part) for i, part in enumerate([X[:7], X[7:7], X[7:8], X[8:]])]
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
    "compressed npz": lambda folder: NumpySource(savez(folder / "a.npz", packed=True, x=X, y=Y)),
    "Fortran order": lambda folder: NumpySource(save(folder / "x.npy", np.asfortranarray(X))),
    "other byte order": lambda folder: NumpySource(save(folder / "x.npy", X.astype(">f4"))),
    "text": lambda folder: NumpySource(save(folder / "x.npy", WORDS)),
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


def savez(path: Path, *, packed: bool = False, **arrays: Any) -> str:
    (np.savez_compressed if packed else np.savez)(path, **arrays)
    return str(path)


class TestNumpySource(SourceSuite):
    @pytest.fixture(params=[name for name in MAKERS if name not in ("fields", "several npz")])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> NumpySource:
        return MAKERS[request.param](tmp_path)


def records_of(source: Any) -> list[Any]:
    return [source[index] for index in range(len(source))]


def test_records_of_one_array_are_its_items(tmp_path: Path):
    assert records_of(NumpySource(save(tmp_path / "y.npy", Y))) == list(Y)


def test_files_follow_one_another_and_those_of_a_pattern_by_name(tmp_path: Path):
    for name, part in (("b", X[3:]), ("a", X[:3])):
        np.save(tmp_path / f"{name}.npy", part)
    source = NumpySource(tmp_path / "*.npy")
    np.testing.assert_array_equal(records_of(source), X)


def test_records_of_named_arrays_are_dicts_however_their_files_are_cut(tmp_path: Path):
    source = MAKERS["named"](tmp_path)
    for index, record in enumerate(records_of(source)):
        assert list(record) == ["x", "y"]
        assert difference({"x": X[index], "y": Y[index]}, record) is None


@pytest.mark.parametrize("packed", [False, True])
def test_records_of_an_npz_file_are_dicts_of_its_arrays(tmp_path: Path, packed: bool):
    path = savez(tmp_path / "a.npz", packed=packed, x=X, flags=Y > 2, words=np.array(["é"] * 20))
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
    packing=st.sampled_from(["npy", "npz", "packed npz", "store"]),
    cuts=st.lists(st.integers(0, 5), max_size=2),
    data=st.data(),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_array_in_any_number_of_files_reads_as_numpy_reads_it(
    array: Any, is_fortran: bool, version: Any, packing: str, cuts: list[int], data: Any, tmp_path
):
    paths: list[str] = []
    for number, part in enumerate(np.split(array, sorted(min(c, len(array)) for c in cuts))):
        path = tmp_path / f"{number}.{packing[-3:]}"
        ordered = np.asfortranarray(part) if is_fortran and packing != "store" else part.copy()
        if "npz" in packing:
            savez(path, packed=packing != "npz", only=ordered)
        else:
            with path.open("wb") as file:
                np.lib.format.write_array(file, ordered, version=version)
        paths.append(in_store(str(path)) if packing == "store" else str(path))
    source = NumpySource(paths)
    assert len(source) == len(array)
    indices = data.draw(st.lists(st.integers(0, len(array) - 1), max_size=8)) if len(array) else []

    for index, record in zip(indices, source.__getitems__(indices), strict=True):
        wanted = {"only": array[index]} if "npz" in packing else array[index]
        assert difference(wanted, record) is None
        assert difference(wanted, source[index]) is None


@pytest.mark.parametrize("kind", MAKERS)
def test_batches_are_what_stacking_its_records_gives(kind: str, tmp_path: Path):
    source = MAKERS[kind](tmp_path)
    if not len(source):
        return
    sampler = IndexSampler(len(source), shuffle=True, seed=1, num_epochs=1)
    rows = list(DataLoader(data_source=records_of(source), sampler=sampler, operations=[Batch(4)]))
    loader = DataLoader(data_source=source, sampler=sampler, operations=[Batch(4)])
    assert difference(rows, list(loader)) is None


@pytest.mark.parametrize(
    ("kind", "is_columnar"),
    [("one file", True), ("named", True), ("text", False), ("other byte order", False)],
)
def test_it_is_columnar_where_it_holds_numbers(kind: str, is_columnar: bool, tmp_path: Path):
    assert MAKERS[kind](tmp_path).is_columnar is is_columnar


@pytest.mark.parametrize("kind", ["one file", "files"])
@pytest.mark.parametrize("indices", [[-1, 0], [0, 20], [25]], ids=str)
def test_columns_outside_its_bounds_are_refused(kind: str, indices: list[int], tmp_path: Path):
    with pytest.raises(IndexError, match=r"^`index` must be in \[0, 20\), got (-1|20|25)\.$"):
        MAKERS[kind](tmp_path).read_columns(np.array(indices))


def test_columns_of_one_file_on_this_machine_are_not_copied_before_they_are_gathered(
    tmp_path: Path,
):
    path = tmp_path / "hole.npy"
    np.lib.format.open_memmap(path, "w+", np.uint8, (10_000_000, 1000)).flush()
    columns = NumpySource(path).read_columns(range(10_000_000))  # 10 GB, and a hole in the file
    assert columns[9_999_998:].gather().shape == (2, 1000)


def test_building_it_reads_nothing(tmp_path: Path):
    path = tmp_path / "x.npy"
    path.write_bytes(b"anything")
    source = NumpySource(path)
    with pytest.raises(FormatError):
        len(source)


def test_a_file_that_is_not_there_is_told_at_once(tmp_path: Path):
    with pytest.raises(MissingFileError):
        NumpySource({"x": tmp_path / "x.npy"})


def test_what_it_has_found_out_travels_when_it_is_pickled_and_no_data(tmp_path: Path):
    source = NumpySource(savez(tmp_path / "a.npz", packed=True, x=np.zeros((1000, 1000))))
    assert source[5]["x"].sum() == 0
    data = pickle.dumps(source)
    os.unlink(tmp_path / "a.npz")
    assert len(data) < 5000
    assert len(pickle.loads(data)) == 1000


def test_compressed_arrays_are_decompressed_once_whoever_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = NumpySource(savez(tmp_path / "a.npz", packed=True, x=X, y=Y))
    reads: list[str] = []
    read = zipfile.ZipFile.read

    def count(self: zipfile.ZipFile, name: Any, *rest: Any) -> bytes:
        reads.append(name)
        return read(self, name, *rest)

    monkeypatch.setattr(zipfile.ZipFile, "read", count)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(source.__getitem__, range(20)))
    assert sorted(reads) == ["x.npy", "y.npy"]


@pytest.fixture
def _few_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 600, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts in /proc")
@pytest.mark.usefixtures("_few_descriptors")
def test_there_may_be_more_files_than_a_process_may_have_open(tmp_path: Path):
    source = NumpySource([save(tmp_path / f"{i:03}.npy", Y[:1] + i) for i in range(700)])
    assert records_of(source) == list(range(700))
    assert source.__getitems__(np.arange(700)) == list(range(700))


@pytest.mark.parametrize("is_read", [False, True])
def test_a_file_that_was_changed_meanwhile_is_not_read(tmp_path: Path, is_read: bool):
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


WHOLE = bytes_of(X)
HEADER = WHOLE[: -X.nbytes]


def with_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


UNTOLD = "has a header that does not tell a shape and a type. Copy it anew."
BAD: dict[str, tuple[bytes, type[FileError], str, int | None]] = {
    "other": (b"GIF89a..", FormatError, "does not start as a NumPy file does: `.npy` and `", 0),
    "empty": (b"", CorruptFileError, "ends inside its header. Copy it anew.", 0),
    "magic": (WHOLE[:5], CorruptFileError, "ends inside its header. Copy it anew.", 5),
    "length": (WHOLE[:9], CorruptFileError, "ends inside its header. Copy it anew.", 9),
    "header": (HEADER[:-9], CorruptFileError, "ends inside its header.", len(HEADER) - 9),
    "version": (
        WHOLE[:6] + b"\x09\x00\x01\x00\x00\x00\x00",
        FormatError,
        "is of version 9.0 of NumPy's format, and 1.0 to 3.0 are known. Save it anew with",
        6,
    ),
    "no data": (HEADER, CorruptFileError, "240 bytes, float32[20, 3], and 0 follow", 128),
    "cut": (WHOLE[:-1], CorruptFileError, "and 239 follow: it was cut short. Copy it anew.", 128),
    "two arrays": (
        WHOLE * 2,
        FormatError,
        "After its array come 368 more bytes, which would be lost. Save each array in a file of",
        368,
    ),
    "objects": (
        bytes_of(np.array([{1}], dtype=object)),
        FormatError,
        "holds Python objects, which are pickled: that can run any code and takes all of it",
        None,
    ),
    "scalar": (bytes_of(np.array(3)), FormatError, "holds a scalar, and an array must have", None),
    "no dict": (with_header("17"), CorruptFileError, UNTOLD, 10),
    "no Python": (with_header("{'descr"), CorruptFileError, UNTOLD, 10),
    "shape": (
        with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"),
        CorruptFileError,
        UNTOLD,
        10,
    ),
    "no shape": (
        with_header("{'descr': '<f4', 'fortran_order': False, 'shape': 3}"),
        CorruptFileError,
        UNTOLD,
        10,
    ),
    "type": (
        with_header("{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}"),
        CorruptFileError,
        UNTOLD,
        10,
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("is_remote", [False, True])
def test_a_file_that_is_no_array_is_described(tmp_path: Path, case: str, is_remote: bool):
    data, kind, words, offset = BAD[case]
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with pytest.raises(kind, match=re.escape(words)) as caught:
        len(NumpySource(in_store(str(path)) if is_remote else path))
    assert caught.value.path is not None
    assert caught.value.path.endswith("x.npy")
    assert caught.value.offset == offset


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_that_is_no_array_is_described(tmp_path: Path, case: str, compression: int):
    data, kind, words, offset = BAD[case]
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("good.npy", WHOLE)
        archive.writestr("bad.npy", data)
        place = archive.getinfo("bad.npy").header_offset
    with pytest.raises(kind, match=re.escape(words)) as caught:
        len(NumpySource(path))
    if compression == zipfile.ZIP_DEFLATED:
        assert caught.value.offset == place
    elif offset is not None:
        assert caught.value.offset == place + 30 + len("bad.npy") + offset


def test_a_file_compressed_otherwise_is_refused(tmp_path: Path):
    path = tmp_path / "x.npy.gz"
    path.write_bytes(gzip.compress(WHOLE))
    with pytest.raises(FormatError, match=r"compressed with gzip, .* Decompress it first, "):
        len(NumpySource(path))


def test_a_damaged_zip_file_is_described_with_where(tmp_path: Path):
    whole = Path(savez(tmp_path / "a.npz", x=X)).read_bytes()
    path = tmp_path / "cut.npz"
    path.write_bytes(whole[:-30])
    told = rf"It is a zip file that is damaged or cut short \(.*\)\. .*byte {len(whole) - 30}\)"
    with pytest.raises(CorruptFileError, match=told):
        len(NumpySource(path))


def test_damaged_compressed_data_are_described_with_where(tmp_path: Path):
    path = Path(savez(tmp_path / "a.npz", packed=True, x=np.arange(100_000) ** 2))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    source = NumpySource(path)
    assert len(source) == 100_000
    with pytest.raises(CorruptFileError, match=r"damaged or cut short \(.*byte 0\)"):
        source[5]


def test_a_member_that_is_not_where_the_directory_says_is_described(tmp_path: Path):
    path = Path(savez(tmp_path / "a.npz", x=X))
    data = bytearray(path.read_bytes())
    data[0:4] = b"PK\x05\x06"
    path.write_bytes(data)
    with pytest.raises(
        CorruptFileError, match=r"Its member 'x\.npy' is not where the zip file's directory says\."
    ):
        len(NumpySource(path))


def test_an_npz_file_without_arrays_is_refused(tmp_path: Path):
    with pytest.raises(FormatError, match=r"It holds no array\. Save some with `np\.savez`\."):
        len(NumpySource(savez(tmp_path / "a.npz")))


def test_arrays_of_one_npz_file_must_be_of_one_length(tmp_path: Path):
    told = (
        r"Its arrays must be of one length along the first axis, got 'x': 20, 'y': 3\. \(.*a\.npz"
    )
    with pytest.raises(FormatError, match=told):
        len(NumpySource(savez(tmp_path / "a.npz", x=X, y=Y[:3])))


def test_named_arrays_must_be_of_one_length(tmp_path: Path):
    paths = {"x": save(tmp_path / "x.npy", X), "y": save(tmp_path / "y.npy", Y[:3])}
    told = r"^The arrays in `paths` must be of one length, got 'x': 20, 'y': 3\.$"
    with pytest.raises(PlanError, match=told):
        len(NumpySource(paths))


@pytest.mark.parametrize(
    ("other", "told"),
    [(X.astype(np.float64), r"float64\[3\]"), (X[:, :2], r"float32\[2\]"), (X[:, 0], "float32")],
    ids=["dtype", "shape", "axes"],
)
def test_files_of_another_kind_than_the_first_are_refused(tmp_path: Path, other: Any, told: str):
    paths = [save(tmp_path / "a.npy", X), save(tmp_path / "b.npy", other)]
    message = rf"Its items are {told}, and those of the first file are float32\[3\]\. .*b\.npy\)"
    with pytest.raises(FormatError, match=message):
        len(NumpySource(paths))


def test_npz_files_with_other_names_than_the_first_are_refused(tmp_path: Path):
    paths = [savez(tmp_path / "a.npz", x=X, y=Y), savez(tmp_path / "b.npz", x=X)]
    told = r"It holds the named arrays 'x', and the first file the named arrays 'x', 'y'\. .*b\.npz"
    with pytest.raises(FormatError, match=told):
        len(NumpySource(paths))


def test_npy_files_among_npz_files_are_refused(tmp_path: Path):
    one, named = save(tmp_path / "a.npy", X), savez(tmp_path / "b.npz", x=X)
    with pytest.raises(FormatError, match=r"It holds a single array, and the first file the named"):
        len(NumpySource([named, one]))
    with pytest.raises(FormatError, match=r"the named arrays 'x', and one array is expected here"):
        len(NumpySource([one, named]))
    with pytest.raises(FormatError, match=r"Save each in a file of its own, or pass such files"):
        len(NumpySource({"x": named}))


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_fortran_order_in_a_store_is_refused_with_a_remedy(tmp_path: Path, suffix: str):
    path = tmp_path / f"a.{suffix}"
    (np.save if suffix == "npy" else np.savez)(path, np.asfortranarray(X))
    told = r"It is in Fortran order, .* Save `np\.ascontiguousarray` of it, or copy the file"
    with pytest.raises(FormatError, match=told):
        len(NumpySource(in_store(str(path))))


def test_names_must_be_text_and_there_must_be_some(tmp_path: Path):
    with pytest.raises(PlanTypeError, match=r"^`paths` must be str, got 1\. Name each array with"):
        NumpySource({1: save(tmp_path / "x.npy", X)})  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlanError, match=r"^`paths` must name at least one array, got an empty"):
        NumpySource({})


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("one file", "NumpySource('x.npy')"),
        ("files", "NumpySource(<4 files>, '0.npy', ...)"),
        ("named", "NumpySource(x: <2 files>, '0.npy', ..., y: 'y.npy')"),
    ],
)
def test_its_repr_tells_the_files_and_no_folder(kind: str, told: str, tmp_path: Path):
    assert repr(MAKERS[kind](tmp_path)) == told


def test_its_repr_counts_many_arrays(tmp_path: Path):
    path = save(tmp_path / "x.npy", X)
    told = "NumpySource(0: 'x.npy', 1: 'x.npy', <30 arrays>)"
    assert repr(NumpySource({str(i): path for i in range(30)})) == told


def test_a_record_of_fields_can_be_written_to_and_is_nobody_elses(tmp_path: Path):
    source = MAKERS["fields"](tmp_path)
    record = source[1]
    record["a"] = 7
    assert record["a"] == 7
    assert source[1]["a"] == 1
