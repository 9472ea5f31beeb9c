"""Sources over idx files return the items of the arrays that were written."""

import gzip
import re
import struct
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
from gristmill._data.sources.arrays.idx import IdxSource
from gristmill._demo.idx import format_idx
from gristmill._demo.mnist import load_mnist
from gristmill.errors import (
    ChangedFileError,
    CorruptFileError,
    FileError,
    FormatError,
    MissingFileError,
)
from gristmill.testing import SourceSuite
from gristmill.testing._records import difference

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
IMAGES = np.arange(13 * 6, dtype=np.uint8).reshape(13, 2, 3)
LABELS = np.arange(13, dtype=np.int16) * 1000


def as_idx(array: Any) -> bytes:
    """Encode an array as the web page of MNIST describes it."""
    code = CODES[array.dtype.str[1:]]
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def save(path: Path, array: Any) -> str:
    data = as_idx(array)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


MAKERS: dict[str, Callable[[Path], IdxSource]] = {
    "images": lambda folder: IdxSource(save(folder / "x", IMAGES)),
    "labels": lambda folder: IdxSource(save(folder / "y", LABELS)),
    "named": lambda folder: IdxSource(
        {
            "image": [save(folder / "x0", IMAGES[:4]), save(folder / "x1.gz", IMAGES[4:])],
            "label": save(folder / "y.gz", LABELS),
        }
    ),
    "compressed": lambda folder: IdxSource(save(folder / "y.gz", LABELS.reshape(13, 1))),
    "in a store": lambda folder: IdxSource(f"local://{save(folder / 'y', LABELS)}"),
    "empty": lambda folder: IdxSource(save(folder / "x", IMAGES[:0])),
}


class TestIdxSource(SourceSuite):
    @pytest.fixture(params=MAKERS)
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> IdxSource:
        return MAKERS[request.param](tmp_path)


def records_of(source: Any) -> list[Any]:
    return [source[index] for index in range(len(source))]


@given(
    array=hnp.arrays(
        dtype=st.sampled_from(sorted(CODES)).map(np.dtype),
        shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4),
    ),
    suffix=st.sampled_from(["", ".gz"]),
    where=st.sampled_from(["", "local://"]),
    cut=st.integers(0, 4),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_array_is_read_in_the_byte_order_of_this_machine(
    array: Any, suffix: str, where: str, cut: int, tmp_path: Path
):
    arrays = np.split(array, [min(cut, len(array))])
    paths = [where + save(tmp_path / f"{i}{suffix}", one) for i, one in enumerate(arrays)]
    source = IdxSource(paths)
    indices = np.arange(len(array))[::-1]

    assert len(source) == len(array)
    assert source.is_columnar
    assert difference(array[::-1], source.read_columns(indices).gather()) is None
    assert difference(list(array), records_of(source)) is None


def test_files_written_by_the_demo_are_read(tmp_path: Path):
    images = load_mnist().test_images[:50]
    (tmp_path / "images").write_bytes(format_idx(images))
    np.testing.assert_array_equal(records_of(IdxSource(tmp_path / "images")), images)


MNIST = Path(__file__).parents[5] / "shared" / "data" / "mnist"


@pytest.mark.skipif(not MNIST.is_dir(), reason="needs the original MNIST files")
def test_the_original_mnist_files_are_read():
    source = IdxSource(
        {
            "image": MNIST / "t10k-images-idx3-ubyte.gz",
            "label": MNIST / "t10k-labels-idx1-ubyte.gz",
        }
    )
    assert len(source) == 10_000
    assert [record["label"] for record in source.__getitems__(range(5))] == [7, 2, 1, 0, 4]
    np.testing.assert_array_equal(source[1]["image"], load_mnist().test_images[1])


@pytest.mark.parametrize("kind", [name for name in MAKERS if name != "empty"])
def test_batches_equal_the_stacked_records(kind: str, tmp_path: Path):
    source = MAKERS[kind](tmp_path)
    sampler = IndexSampler(len(source), shuffle=True, seed=1, num_epochs=1)
    rows = list(DataLoader(data_source=records_of(source), sampler=sampler, operations=[Batch(4)]))
    loader = DataLoader(data_source=source, sampler=sampler, operations=[Batch(4)])
    assert difference(rows, list(loader)) is None


def test_a_compressed_file_is_decompressed_once_for_all_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = IdxSource(save(tmp_path / "y.gz", LABELS))
    assert len(source) == 13
    reads: list[int] = []
    read = gzip.GzipFile.read

    def count(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        reads.append(-1 if size is None else size)
        return read(self, size)

    monkeypatch.setattr(gzip.GzipFile, "read", count)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(source.__getitem__, range(13)))
    assert reads == [9 + LABELS.nbytes, 1]  # one byte more than announced, once


def test_a_file_of_several_gzip_members_is_read_to_the_end(tmp_path: Path):
    data = as_idx(LABELS)
    (tmp_path / "y.gz").write_bytes(gzip.compress(data[:11]) + gzip.compress(data[11:]))
    assert records_of(IdxSource(tmp_path / "y.gz")) == list(LABELS)


COMPLETE = as_idx(IMAGES)
BAD: dict[str, tuple[bytes, type[FileError], str, int | None]] = {
    "empty": (b"", CorruptFileError, "The file ends inside its header. Copy it again.", 0),
    "magic": (COMPLETE[:3], CorruptFileError, "The file ends inside its header. Copy it again.", 3),
    "header": (
        COMPLETE[:15],
        CorruptFileError,
        "The file ends inside its header. Copy it again.",
        15,
    ),
    "zeros": (
        b"\x01" + COMPLETE[1:],
        FormatError,
        "The file starts with the bytes 01 00 08 03, but an idx file starts with two zeros and a "
        "type among 08, 09, 0b, 0c, 0d, 0e.",
        0,
    ),
    "type": (
        COMPLETE[:2] + b"\x0a" + COMPLETE[3:],
        FormatError,
        "The file starts with the bytes 00 00 0a",
        0,
    ),
    "scalar": (b"\0\0\x08\0\x07", FormatError, "The array is a scalar, but it must have", None),
    "no data": (COMPLETE[:16], CorruptFileError, "78 bytes, uint8[13, 2, 3], but 0 follow", 16),
    "cut": (
        COMPLETE[:-1],
        CorruptFileError,
        "but 77 follow: the file is truncated. Copy it again.",
        16,
    ),
    "more": (
        COMPLETE + b"abc",
        FormatError,
        "The array is followed by 3 more bytes, which would",
        94,
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_invalid_file_is_an_error_with_the_offset(tmp_path: Path, case: str, suffix: str):
    data, kind, message, offset = BAD[case]
    path = tmp_path / f"x{suffix}"
    path.write_bytes(gzip.compress(data) if suffix else data)
    source = IdxSource(path)
    if suffix:
        message = message.replace("3 more bytes", "more bytes")
    with pytest.raises(kind, match=re.escape(message)) as caught:
        source[0]
    assert caught.value.path == str(path)
    assert caught.value.offset == offset


def damaged(data: bytes) -> bytes:
    return data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]


@pytest.mark.parametrize("damage", [damaged, lambda data: data[:-9], lambda data: data[:5]])
def test_a_damaged_gzip_file_is_an_error_with_the_offset(tmp_path: Path, damage: Any):
    path = tmp_path / "y.gz"
    save(path, LABELS)
    path.write_bytes(damage(path.read_bytes()))
    message = r"^The gzip file is damaged or truncated \(.*\)\. Copy it again\. \(.*byte"
    with pytest.raises(CorruptFileError, match=message) as caught:
        IdxSource(path)[0]
    assert caught.value.offset == path.stat().st_size


def test_a_missing_file_is_an_error_when_the_source_is_created(tmp_path: Path):
    with pytest.raises(MissingFileError):
        IdxSource({"x": tmp_path / "x"})


def test_a_file_that_has_changed_is_an_error(tmp_path: Path):
    path = tmp_path / "x"
    source = IdxSource(save(path, IMAGES))
    assert source[0].shape == (2, 3)
    save(path, IMAGES[:5])
    with pytest.raises(ChangedFileError):
        source[12]


def test_files_of_another_type_are_an_error_that_shows_the_byte_order(tmp_path: Path):
    paths = [save(tmp_path / "x", IMAGES), save(tmp_path / "y", LABELS)]
    message = r"^The items are >i2, but those of the first file are uint8\[2, 3\]\. .*y\)$"
    with pytest.raises(FormatError, match=message):
        len(IdxSource(paths))


def test_its_repr_contains_the_files_without_their_folder(tmp_path: Path):
    expected = "IdxSource(image: <2 files>, 'x0', ..., label: 'y.gz')"
    assert repr(MAKERS["named"](tmp_path)) == expected
