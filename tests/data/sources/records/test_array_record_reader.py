"""Records of an ArrayRecord file are the same, whether read one by one or in one call."""

import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from array_record.python.array_record_module import ArrayRecordReader as LibraryReader
from array_record.python.array_record_module import ArrayRecordWriter

from gristmill._data.sources.records.array_record_reader import (
    MAX_SERIAL_RECORDS,
    NUM_BULK_CALLS,
    ArrayRecordReader,
)
from gristmill.sources import ArrayRecordDataSource

RECORDS = [random.Random(number).randbytes(number % 300) for number in range(1500)]


def write(path: Path, records: list[bytes], options: str = "group_size:1") -> Path:
    writer = ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return path


def open_library(path: Path) -> Any:
    return LibraryReader(str(path), options="readahead_buffer_size:0,max_parallelism:0")


def open_reader(path: Path, *, can_seek: bool = True) -> ArrayRecordReader:
    return ArrayRecordReader(lambda: open_library(path), can_seek=can_seek)


@pytest.mark.parametrize("options", ["group_size:1", "group_size:50", "group_size:1,uncompressed"])
@pytest.mark.parametrize("can_seek", [True, False])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 100, MAX_SERIAL_RECORDS, MAX_SERIAL_RECORDS + 1])
def test_records_come_in_the_order_of_their_numbers(
    tmp_path: Path, options: str, can_seek: bool, count: int
):
    reader = open_reader(write(tmp_path / "a", RECORDS, options), can_seek=can_seek)
    keys = random.Random(1).choices(range(len(RECORDS)), k=count)

    for _ in range(3):
        assert reader.read(keys) == [RECORDS[key] for key in keys]
    assert reader.num_records() == len(RECORDS)


def test_records_that_take_long_are_read_at_once_for_some_calls(tmp_path: Path):
    large = [bytes([number]) * 4_000_000 for number in range(24)]
    reader = open_reader(write(tmp_path / "a", large))

    assert reader.read(list(range(24))) == large

    assert reader._num_bulk_calls == NUM_BULK_CALLS
    for number in range(NUM_BULK_CALLS):
        assert reader.read([number % 24]) == [large[number % 24]]
    assert not reader._num_bulk_calls


def test_a_damaged_record_raises_the_error_of_the_library_and_others_are_read(tmp_path: Path):
    noise = random.Random(0)
    records = [noise.randbytes(2000) for _ in range(50)]
    path = write(tmp_path / "a", records)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    reader = open_reader(path)

    damaged: list[int] = []
    for number, record in enumerate(records):
        try:
            open_library(path).read([number])
        except Exception as error:
            damaged.append(number)
            with pytest.raises(type(error), match=re.escape(str(error))):
                reader.read([number])
        else:
            assert reader.read([number]) == [record]
    assert len(damaged) == 1

    with pytest.raises(Exception, match=r"chunk|byte|hash|[Ii]nvalid"):
        reader.read(list(range(50)))
    others = [number for number in range(50) if number not in damaged]
    assert reader.read(others) == [records[number] for number in others]


@pytest.mark.parametrize("position", range(8))
def test_a_changed_byte_is_never_read_as_another_record(tmp_path: Path, position: int):
    path = write(tmp_path / "a", RECORDS[:300])
    data = bytearray(path.read_bytes())
    data[len(data) * (2 * position + 1) // 20] ^= 0x55
    path.write_bytes(bytes(data))
    reader = open_reader(path)

    for number in range(300):
        try:
            (record,) = reader.read([number])
        except Exception:
            with pytest.raises(Exception, match=r"."):
                open_library(path).read([number])
        else:
            assert record == RECORDS[number]


def test_a_number_past_the_end_is_an_error_and_the_reader_still_works(tmp_path: Path):
    reader = open_reader(write(tmp_path / "a", RECORDS))

    with pytest.raises((IndexError, ValueError, RuntimeError)):
        reader.read([0, len(RECORDS)])
    assert reader.read([3]) == [RECORDS[3]]


def test_threads_share_a_reader(tmp_path: Path):
    reader = open_reader(write(tmp_path / "a", RECORDS))
    calls = [
        random.Random(number).choices(range(len(RECORDS)), k=1 + 40 * (number % 20))
        for number in range(200)
    ]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(reader.read, calls))

    assert results == [[RECORDS[key] for key in keys] for keys in calls]


@pytest.mark.parametrize("option", ["max_parallelism", "readahead_buffer_size"])
def test_options_for_reading_ahead_are_those_of_the_user(tmp_path: Path, option: str):
    path = write(tmp_path / "a.array_record", RECORDS)

    source = ArrayRecordDataSource(path, {option: "4"})

    assert source.__getitems__([7, 1400, 7]) == [RECORDS[7], RECORDS[1400], RECORDS[7]]
