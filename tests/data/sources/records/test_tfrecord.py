"""TFRecord files as other libraries write and read them, complete and damaged."""

import gzip
import pickle
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
import google_crc32c
import grain
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill._data.sources.records import tfrecord as _tfrecord
from gristmill._data.sources.records.tfrecord import TFRecordSource, read_frames
from gristmill._io.file import File
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files
from gristmill.errors import CorruptFileError, FileError, FormatError, MissingFileError
from gristmill.options import StorageOptions
from gristmill.testing import SourceSuite

RNG = np.random.default_rng(0)
RECORDS = [b"first", b"", b"\0" * 7, RNG.bytes(3000), b"last"]
HEAD, TAIL = 12, 4


def masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


def write(path: Path, records: Sequence[bytes]) -> Path:
    path.write_bytes(b"".join(map(frame, records)))
    return path


def by_grain(path: Path) -> list[bytes]:
    return list(grain.experimental.TFRecordIterDataset(str(path)))


def open_one(path: Path) -> File:
    return OpenFiles(find_files(path))[0]


def read_all(source: Any) -> list[bytes]:
    return source.__getitems__(range(len(source)))


class TestTFRecordSource(SourceSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> TFRecordSource:
        for number in range(3):
            write(tmp_path / f"{number}.tfrecord", [b"%d %d" % (number, i) for i in range(9)])
        return TFRecordSource(tmp_path / "*.tfrecord")


class TestEmptyTFRecordSource(SourceSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> TFRecordSource:
        return TFRecordSource(write(tmp_path / "empty.tfrecord", []))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(HEAD, 200))
def test_grain_and_gristmill_read_the_same(tmp_path: Path, records: list[bytes], chunk: int):
    path = write(tmp_path / "any.tfrecord", records)
    with pytest.MonkeyPatch.context() as patch:  # chunks that end anywhere in a record
        patch.setattr("gristmill._io.local.CHUNK_BYTES", chunk)
        patch.setattr(_tfrecord, "_WINDOW_BYTES", chunk)
        source = TFRecordSource(path)
        blocks = list(read_frames(open_one(path)))

        assert by_grain(path) == records
        assert read_all(source) == records
        assert [record for block, _ in blocks for record in block] == records
        ends = np.cumsum([len(record) + HEAD + TAIL for record in records])
        assert [end for _, block in blocks for end in block] == ends.tolist()


@pytest.mark.parametrize("size", [1_000, 300_000, 5_000_000])
def test_records_of_any_size_are_found_and_read(tmp_path: Path, size: int):
    sizes = [size, 10, 20, size + 1, size + 2, size + 3, 30, size]
    records = [RNG.bytes(size) for size in sizes]
    path = write(tmp_path / "a.tfrecord", records)

    assert read_all(TFRecordSource(path)) == records
    assert [record for block, _ in read_frames(open_one(path)) for record in block] == records


def test_large_records_are_not_read_when_the_index_is_built(tmp_path: Path):
    path = write(tmp_path / "a.tfrecord", [bytes(2**20)] * 20)
    file = _CountingFile(open_one(path))

    index = _tfrecord._index_records(file)

    assert index["lengths"].tolist() == [2**20] * 20
    assert file.num_bytes < 6 * 2**20


def test_small_records_are_found_in_few_reads(tmp_path: Path):
    path = write(tmp_path / "a.tfrecord", [bytes(100)] * 50_000)
    file = _CountingFile(open_one(path))

    assert len(_tfrecord._index_records(file)["starts"]) == 50_000
    assert file.num_reads <= 3


class _CountingFile(File):
    """A file that counts reads and bytes."""

    num_reads = num_bytes = 0

    def __init__(self, file: File) -> None:
        self.file = file

    @property
    def ref(self) -> Any:
        return self.file.ref

    def read(self, starts: Any, stops: Any) -> list[bytes]:
        self.num_reads += len(starts)
        self.num_bytes += sum(stops) - sum(starts)
        return self.file.read(starts, stops)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        return self.file.chunks(start, stop)

    def local_path(self) -> Path:
        return self.file.local_path()

    def check_unchanged(self) -> None:
        self.file.check_unchanged()


def test_several_files_are_concatenated_in_the_passed_order(tmp_path: Path):
    paths = [write(tmp_path / name, [name.encode(), b"x"]) for name in "ba"]
    paths.insert(1, write(tmp_path / "empty", []))
    source = TFRecordSource(paths)

    assert read_all(source) == [b"b", b"x", b"a", b"x"]
    assert source.__getitems__(np.array([3, 0, 2, 0])) == [b"x", b"b", b"a", b"b"]
    assert source.__getitems__([]) == []
    assert source[2] == b"a"


def test_files_in_a_store_are_read(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # for the indexes
    store = fsspec.filesystem("memory")
    large = RNG.bytes(9 * 2**20)
    store.pipe("/tfrecords/a", b"".join(map(frame, [large, b"x"])))
    store.pipe("/tfrecords/b", COMPLETE)
    source = TFRecordSource("memory://tfrecords/*")
    try:
        assert read_all(source) == [large, b"x", *RECORDS]
    finally:
        store.rm("/tfrecords", recursive=True)


def test_creating_the_source_reads_nothing_but_a_missing_file_is_an_error(tmp_path: Path):
    path = write(tmp_path / "a.tfrecord", RECORDS)
    TFRecordSource(path)
    assert [found.name for found in tmp_path.iterdir()] == ["a.tfrecord"]
    with pytest.raises(MissingFileError):
        TFRecordSource(tmp_path / "b.tfrecord")


def test_the_index_is_stored_and_part_of_a_pickled_source(tmp_path: Path, monkeypatch: Any):
    storage = StorageOptions(index_beside_data=True)
    source = TFRecordSource(write(tmp_path / "a.tfrecord", RECORDS), storage=storage)
    assert len(source) == 5
    monkeypatch.setattr(_tfrecord, "_find_records", None)  # the file is not searched again

    assert read_all(TFRecordSource(tmp_path / "a.tfrecord")) == RECORDS
    (tmp_path / "a.tfrecord.tfrecord.gristmill-index").unlink()
    assert read_all(pickle.loads(pickle.dumps(source))) == RECORDS


def test_reading_can_start_at_any_record(tmp_path: Path):
    path = write(tmp_path / "a.tfrecord", RECORDS)
    ends = [end for _, block in read_frames(open_one(path)) for end in block]

    for number, start in enumerate([0, *ends]):
        blocks = list(read_frames(open_one(path), start))
        assert [record for block, _ in blocks for record in block] == RECORDS[number:]
        assert [end for _, block in blocks for end in block] == ends[number:]


def test_reading_cannot_start_after_the_end(tmp_path: Path):
    path = write(tmp_path / "a.tfrecord", [b"abc"])
    with pytest.raises(CorruptFileError) as caught:
        next(read_frames(open_one(path), 100))
    assert caught.value.message == (
        "The file ends at byte 19, before byte 100, where reading was to start: the file is "
        "truncated, or has been replaced. Copy it again."
    )


def expect_error(path: Path, kind: type[FileError], message: str, *, before: int) -> None:
    """Expect the same error from the stream, after the records before it, and from the source."""
    records: list[bytes] = []
    blocks = (records.extend(block) for block, _ in read_frames(open_one(path)))
    with pytest.raises(FileError) as streamed:
        list(blocks)
    with pytest.raises(FileError) as indexed:
        read_all(TFRecordSource(path))

    offset = sum(len(record) + HEAD + TAIL for record in RECORDS[:before])
    assert records == RECORDS[:before]
    for caught in (streamed, indexed):
        assert type(caught.value) is kind
        assert caught.value.message == message
        assert (caught.value.path, caught.value.offset) == (str(path), offset)
        assert caught.value.record == (None if kind is FormatError else before)


COMPLETE = b"".join(map(frame, RECORDS))
ENDS = np.cumsum([len(record) + HEAD + TAIL for record in RECORDS]).tolist()


@pytest.mark.parametrize("size", [1, 11, 12, 15, 20, 22, 36, 40, 3000, len(COMPLETE) - 1])
def test_a_truncated_file_is_an_error_with_the_offset_of_the_record(tmp_path: Path, size: int):
    path = tmp_path / "truncated.tfrecord"
    path.write_bytes(COMPLETE[:size])

    expect_error(
        path,
        CorruptFileError,
        f"The file ends at byte {size:,}, inside the record that begins here: it is truncated. "
        "Copy it again.",
        before=sum(end <= size for end in ENDS),
    )


@pytest.mark.parametrize("size", [0, *ENDS])
def test_a_file_that_ends_between_records_is_complete(tmp_path: Path, size: int):
    path = tmp_path / "short.tfrecord"
    path.write_bytes(COMPLETE[:size])
    assert read_all(TFRecordSource(path)) == RECORDS[: sum(end <= size for end in ENDS)]


@pytest.mark.parametrize("record", [1, 3, 4])
@pytest.mark.parametrize("byte", range(HEAD))
def test_a_damaged_length_is_an_error_with_the_offset_of_the_record(
    tmp_path: Path, record: int, byte: int
):
    path = tmp_path / "damaged.tfrecord"
    data = bytearray(COMPLETE)
    data[ENDS[record - 1] + byte] ^= 0x40
    path.write_bytes(data)

    expect_error(
        path,
        CorruptFileError,
        "No record begins here, or its length is damaged: the checksum does not match. "
        "Copy the file again.",
        before=record,
    )


@pytest.mark.parametrize("record", range(len(RECORDS)))
def test_damaged_data_are_an_error_with_the_offset_of_the_record(tmp_path: Path, record: int):
    path = tmp_path / "damaged.tfrecord"
    for byte in {ENDS[record] - 1, ENDS[record] - TAIL - min(1, len(RECORDS[record]))}:
        data = bytearray(COMPLETE)
        data[byte] ^= 1
        path.write_bytes(data)

        expect_error(
            path,
            CorruptFileError,
            "The record that begins here is damaged: the checksum of its data does not match. "
            "Copy the file again.",
            before=record,
        )


def test_records_other_than_a_damaged_one_can_be_read(tmp_path: Path):
    path = tmp_path / "damaged.tfrecord"
    path.write_bytes(COMPLETE.replace(b"last", b"lost"))
    source = TFRecordSource(path)

    assert source.__getitems__([3, 0, 1]) == [RECORDS[3], RECORDS[0], RECORDS[1]]
    with pytest.raises(CorruptFileError, match=r"\(.*damaged\.tfrecord, byte 3,076, record 4\)$"):
        source[4]


def test_the_number_of_a_damaged_record_is_unknown_if_reading_starts_in_the_middle(tmp_path: Path):
    path = tmp_path / "damaged.tfrecord"
    path.write_bytes(COMPLETE.replace(b"last", b"lost"))
    with pytest.raises(CorruptFileError, match=r"\(.*damaged\.tfrecord, byte 3,076\)$"):
        list(read_frames(open_one(path), ENDS[1]))


@pytest.mark.parametrize("data", [b"just some text, and long enough", bytes(100)])
def test_a_file_of_another_format_is_an_error(tmp_path: Path, data: bytes):
    path = tmp_path / "other.tfrecord"
    path.write_bytes(data)
    expect_error(
        path,
        FormatError,
        "The file is not a TFRecord file: it does not begin with the length of a record and its "
        "checksum. Check the path.",
        before=0,
    )


@pytest.mark.parametrize("records", [[], RECORDS])
def test_a_file_compressed_with_gzip_is_decompressed(tmp_path: Path, records: list[bytes]):
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(b"".join(map(frame, records))))
    assert read_all(TFRecordSource(path)) == records


@pytest.mark.parametrize("records", [[], RECORDS])
@pytest.mark.parametrize("level", [1, 5, 6, 9])
def test_a_file_compressed_with_zlib_is_an_error(tmp_path: Path, records: list[bytes], level: int):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(zlib.compress(b"".join(map(frame, records)), level))
    expect_error(
        path,
        FormatError,
        "The file is compressed with zlib, so no record can be read without reading all records "
        "before it. Decompress it first, for example with `zlib.decompress` in Python.",
        before=0,
    )


def test_a_length_that_looks_like_the_start_of_a_compressed_file_is_a_length(tmp_path: Path):
    records = [bytes(0x8B1F), b"abc"]
    path = write(tmp_path / "a.tfrecord", records)
    assert path.read_bytes().startswith(b"\x1f\x8b")
    assert read_all(TFRecordSource(path)) == records


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, len(COMPLETE)),
    st.lists(st.tuples(st.integers(0, len(COMPLETE) - 1), st.integers(0, 255)), max_size=2),
)
def test_no_damage_goes_unnoticed(tmp_path: Path, size: int, changes: list[tuple[int, int]]):
    data = bytearray(COMPLETE)
    for at, value in changes:
        data[at] = value
    path = tmp_path / "damaged.tfrecord"
    path.write_bytes(data[:size])
    is_complete = bytes(data[:size]) in [COMPLETE[:end] for end in [0, *ENDS]]

    try:
        records = read_all(TFRecordSource(path))
    except (FormatError, CorruptFileError):
        assert not is_complete
    else:
        assert is_complete
        assert records == RECORDS[: len(records)]


def test_its_repr_contains_the_files_without_their_folder(tmp_path: Path):
    paths = [write(tmp_path / f"{number}.tfrecord", RECORDS) for number in range(3)]

    assert repr(TFRecordSource(paths[0])) == "TFRecordSource('0.tfrecord')"
    assert repr(TFRecordSource(paths)) == "TFRecordSource(<3 files>, '0.tfrecord', ...)"


def test_an_index_out_of_bounds_is_an_error(tmp_path: Path):
    source = TFRecordSource(write(tmp_path / "a.tfrecord", RECORDS))
    with pytest.raises(IndexError, match=re.escape("`index` must be in [0, 5), got 5.")):
        source[5]
