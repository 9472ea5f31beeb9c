import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill._data.sources import file_streams as _file_streams
from gristmill._data.sources.file_streams import ParquetStream, TFRecordStream
from gristmill._io.paths import find_file
from gristmill.errors import CorruptFileError
from tests.compat.both_sides import assert_same

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


COLUMNS: dict[str, Any] = {
    **{str(kind): pa.array([1, 2, 3, 4], kind) for kind in (pa.int8(), pa.uint64(), pa.float32())},
    "half": pa.array(np.arange(4, dtype=np.float16)),
    "bool": pa.array([True, False, True, False]),
    "string": pa.array(["a", None, "ü", ""]),
    "large string": pa.array(["a", "b", "c", None], pa.large_string()),
    "binary": pa.array([b"a", b"\xff", None, b""]),
    "nulls": pa.array([1, None, 3, None]),
    "float nulls": pa.array([1.5, None, 3.0, None]),
    "all null": pa.array([None] * 4, pa.int32()),
    "time": pa.array([1, 2, 3, None], pa.timestamp("us")),
    "list": pa.array([[1], [], [2, 3], None]),
    "dictionary": pa.array(["x", "y", "x", None]).dictionary_encode(),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())
@pytest.mark.parametrize("num_rows", [0, 4])
def test_values_are_those_of_the_numpy_array_that_pyarrow_makes(
    tmp_path: Path, column: Any, num_rows: int
):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": column[:num_rows]}), path, row_group_size=3)
    file: Any = pq.ParquetFile(path)
    groups = [file.read_row_group(group) for group in range(file.num_row_groups)]

    rows = [
        row for block, _ in ParquetStream(find_file(path, None)).read_from([0, 0]) for row in block
    ]

    assert_same(
        [row["x"] for row in rows], [value for group in groups for value in group["x"].to_numpy()]
    )


def test_strings_and_numbers_are_read_without_pandas(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": ["a", None], "y": [1, 2]}), path)
    program = (
        "import sys; from gristmill.experimental import ParquetIterDataset; "
        f"print(list(ParquetIterDataset({str(path)!r})), 'pandas' in sys.modules)"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert printed == "[{'x': 'a', 'y': np.int64(1)}, {'x': None, 'y': np.int64(2)}] False\n"


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
