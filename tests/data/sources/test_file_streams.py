import struct
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill._data.sources import file_streams as _file_streams
from gristmill._data.sources.file_streams import ParquetStream, TFRecordStream
from gristmill._io.paths import find_file
from gristmill.errors import CorruptFileError

RECORDS = [bytes([number]) * (number * 7 % 50) for number in range(20)]


def frame(record: bytes) -> bytes:
    def masked(data: bytes) -> bytes:
        crc = google_crc32c.value(data)
        return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


@pytest.fixture
def tfrecord(tmp_path: Path) -> TFRecordStream:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(map(frame, RECORDS)))
    return TFRecordStream(find_file(path, None))


@pytest.fixture
def parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ParquetStream:
    monkeypatch.setattr(_file_streams, "_BLOCK_ROWS", 3)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(20), "t": [str(n) for n in range(20)]}), path, 8)
    return ParquetStream(find_file(path, None))


@pytest.fixture(params=["tfrecord", "parquet"])
def stream(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_reading_resumes_after_any_record(stream: Any):
    records: list[Any] = []
    positions = [stream.start]
    for block, position_after in stream.read_from(stream.start):
        records += block
        positions += [position_after(count) for count in range(1, len(block) + 1)]

    assert len(positions) == len(records) + 1 == 21
    for count, position in enumerate(positions):
        remaining = [record for block, _ in stream.read_from(position) for record in block]
        assert remaining == records[count:]


def test_the_position_after_no_record_of_a_block_is_where_it_begins(stream: Any):
    position = stream.start
    for block, position_after in stream.read_from(position):
        (first, *_), _ = next(stream.read_from(position_after(0)))
        assert first == block[0]


def test_records_equal_those_that_were_written(tfrecord: TFRecordStream, parquet: ParquetStream):
    assert [record for block, _ in tfrecord.read_from(0) for record in block] == RECORDS
    rows = [row for block, _ in parquet.read_from([0, 0]) for row in block]
    assert rows == [{"id": number, "t": str(number)} for number in range(20)]


def test_numbers_of_a_row_group_with_a_null_are_floats(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1, 2, None, 4]}), path, row_group_size=2)
    (first, _), (second, _) = ParquetStream(find_file(path, None)).read_from([0, 0])
    assert [type(row["n"]).__name__ for row in [*first, *second]] == ["int64"] * 2 + ["float64"] * 2


def test_a_damaged_file_is_an_error(tmp_path: Path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(CorruptFileError, match=r"^The Parquet file is damaged or truncated: "):
        next(ParquetStream(find_file(path, None)).read_from([0, 0]))


def test_their_reprs_contain_the_file_without_its_folder(
    tfrecord: TFRecordStream, parquet: ParquetStream
):
    assert repr(tfrecord) == "TFRecord('a.tfrecord')"
    assert repr(parquet) == "Parquet('a.parquet')"
