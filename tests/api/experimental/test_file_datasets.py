"""Files read from front to back: what Grain yields, and resumable at every element."""

import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import google_crc32c
import grain
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gristmill
from gristmill.errors import CorruptFileError, FormatError, MissingFileError, PlanError
from gristmill.experimental import (
    ParquetIterDataset,
    TarIterDataset,
    TFRecordIterDataset,
    assert_equal_output_after_checkpoint,
)

RECORDS = [bytes([number % 256]) * (number * 37 % 900) for number in range(300)]


def masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write_tfrecord(path: Path, records: list[bytes]) -> Path:
    with open(path, "wb") as file:
        for record in records:
            length = struct.pack("<Q", len(record))
            file.write(length + masked(length) + record + masked(record))
    return path


def table(count: int, first: int = 0) -> Any:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "maybe": pa.array([None if number % 5 == 0 else number for number in numbers]),
            "text": [f"text {number}" for number in numbers],
            "items": [list(range(number % 4)) for number in numbers],
            "time": pa.array(numbers, pa.timestamp("us")),
        }
    )


@pytest.fixture
def parquet(tmp_path: Path) -> list[str]:
    paths = [str(tmp_path / f"{number:02d}.parquet") for number in range(20)]
    for number, path in enumerate(paths):
        pq.write_table(table(10 + number, 100 * number), path, row_group_size=7)
    return paths


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    """Return the paths of five WebDataset shards with ten records each."""
    paths = [str(tmp_path / f"{number}.tar") for number in range(5)]
    for number, path in enumerate(paths):
        with tarfile.open(path, "w") as archive:
            for record in range(10 * number, 10 * number + 10):
                for extension, data in [("txt", b"x" * 100 * record), ("cls", b"%d" % record)]:
                    member = tarfile.TarInfo(f"{record:03}.{extension}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    return paths


def label(record: dict[str, Any]) -> int:
    return int(record["cls"])


@pytest.fixture
def tfrecord(tmp_path: Path) -> Path:
    return write_tfrecord(tmp_path / "a.tfrecord", RECORDS)


def assert_same_stream(ours: Any, theirs: Any) -> None:
    given, expected = list(ours), list(theirs)
    assert len(given) == len(expected)
    for one, other in zip(given, expected, strict=True):
        np.testing.assert_equal(one, other)
        if isinstance(other, dict):
            assert {key: type(value) for key, value in one.items()} == {
                key: type(value) for key, value in other.items()
            }


def test_the_records_of_a_tfrecord_file_are_those_grain_yields(tfrecord: Path):
    ours = TFRecordIterDataset(tfrecord)
    theirs = grain.experimental.TFRecordIterDataset(str(tfrecord))

    assert list(ours) == list(theirs) == RECORDS


@pytest.mark.parametrize("count", [1, 2, 20])
def test_the_rows_of_parquet_files_are_those_grain_yields(parquet: list[str], count: int):
    paths: Any = parquet[0] if count == 1 else parquet[:count]

    assert_same_stream(ParquetIterDataset(paths), grain.experimental.ParquetIterDataset(paths))


def test_only_some_files_of_many(parquet: list[str]):
    ours = ParquetIterDataset(parquet)
    theirs: Any = grain.experimental.ParquetIterDataset(parquet)
    ours.set_slice(slice(1, None, 3))
    theirs.set_slice(slice(1, None, 3))

    assert_same_stream(ours, theirs)


def test_a_pattern_and_options_of_the_reader(parquet: list[str], tmp_path: Path):
    ours = ParquetIterDataset(str(tmp_path / "*.parquet"), memory_map=True)

    assert_same_stream(ours, grain.experimental.ParquetIterDataset(parquet))


def test_they_go_on_from_every_element(tmp_path: Path):
    write_tfrecord(tmp_path / "a.tfrecord", RECORDS[:12])
    pq.write_table(table(20), tmp_path / "a.parquet", row_group_size=7)
    pq.write_table(table(9, 50), tmp_path / "b.parquet", row_group_size=4)

    for dataset in (
        TFRecordIterDataset(tmp_path / "a.tfrecord"),
        ParquetIterDataset(str(tmp_path / "a.parquet")),
        ParquetIterDataset([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]),
    ):
        assert_equal_output_after_checkpoint(dataset)


def test_a_state_is_where_the_next_record_begins(tfrecord: Path):
    iterator = iter(TFRecordIterDataset(tfrecord))
    for _ in range(17):
        next(iterator)

    state = json.dumps(iterator.get_state())

    assert str(sum(16 + len(record) for record in RECORDS[:17])) in state
    assert len(state) < 1000


def test_they_are_datasets_like_any_other(parquet: list[str]):
    def ids(package: Any) -> list[Any]:
        dataset = package.experimental.ParquetIterDataset(parquet)
        shuffled = package.experimental.WindowShuffleIterDataset(dataset, window_size=20, seed=3)
        mapped = shuffled.map(lambda row: row["id"]).filter(lambda number: number % 3)
        return [batch.tolist() for batch in mapped.batch(8)]

    assert ids(gristmill) == ids(grain)


def test_workers_change_nothing(parquet: list[str]):
    options = gristmill.MultiprocessingOptions(num_workers=2)
    plain = ParquetIterDataset(parquet).map(lambda row: int(row["id"])).batch(8)

    with_workers = [batch.tolist() for batch in plain.mp_prefetch(options)]

    assert with_workers == [batch.tolist() for batch in plain]


def test_a_damaged_record_stands_in_its_place(tmp_path: Path):
    path = write_tfrecord(tmp_path / "a.tfrecord", [b"first", b"second", b"third"])
    path.write_bytes(path.read_bytes().replace(b"second", b"sec0nd"))
    iterator = iter(TFRecordIterDataset(path))

    assert next(iterator) == b"first"
    with pytest.raises(CorruptFileError, match=r"a\.tfrecord, byte 21, record 1"):
        next(iterator)


@pytest.mark.parametrize("dataset", [TFRecordIterDataset, ParquetIterDataset])
def test_a_missing_file_is_reported_at_once(tmp_path: Path, dataset: Any):
    with pytest.raises(MissingFileError, match="no such file"):
        dataset(tmp_path / "none")


def test_another_format_is_reported(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"neither one nor the other, but long enough")

    with pytest.raises(FormatError, match="not a Parquet file"):
        next(iter(ParquetIterDataset(tmp_path / "a")))
    with pytest.raises(FormatError, match="TFRecord"):
        next(iter(TFRecordIterDataset(tmp_path / "a")))


def test_a_damaged_row_group_is_reported(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(10_000) % 97}), path, compression="zstd")
    data = bytearray(path.read_bytes())
    data[40:200] = bytes(160)
    path.write_bytes(bytes(data))

    with pytest.raises(CorruptFileError, match=r"a\.parquet"):
        next(iter(ParquetIterDataset(path)))


def test_one_path_is_one_file(tmp_path: Path):
    for name in "ab":
        write_tfrecord(tmp_path / f"{name}.tfrecord", [b""])

    with pytest.raises(PlanError, match="must be one file"):
        TFRecordIterDataset(str(tmp_path / "*.tfrecord"))


def test_a_file_without_records(tmp_path: Path):
    (tmp_path / "a.tfrecord").touch()
    pq.write_table(table(0), tmp_path / "a.parquet")

    assert list(TFRecordIterDataset(tmp_path / "a.tfrecord")) == []
    assert list(ParquetIterDataset(tmp_path / "a.parquet")) == []


# WebDataset shards.


def test_the_records_of_tar_files_are_those_with_random_access(shards: list[str], tmp_path: Path):
    records = list(TarIterDataset(f"{tmp_path}/{{0..4}}.tar"))
    source = gristmill.sources.TarSource(shards)
    assert records == [source[index] for index in range(50)]


def test_tar_files_are_datasets_like_any_other(shards: list[str]):
    dataset = TarIterDataset(shards).map(label).shuffle(7, seed=1).filter(lambda x: x % 3).batch(4)
    assert_equal_output_after_checkpoint(dataset)
    options = gristmill.MultiprocessingOptions(num_workers=2)
    batches = [batch.tolist() for batch in dataset]
    assert [batch.tolist() for batch in dataset.mp_prefetch(options)] == batches
    assert sorted(x for batch in batches for x in batch) == [
        number for number in range(50) if number % 3
    ]


@pytest.mark.parametrize(("drop_remainder", "lengths"), [(False, [30, 20]), (True, [20, 20])])
def test_each_shard_of_a_run_reads_other_tar_files(
    shards: list[str], drop_remainder: bool, lengths: list[int]
):
    found = [
        list(
            TarIterDataset(
                shards, shard_options=gristmill.ShardOptions(index, 2, drop_remainder)
            ).map(label)
        )
        for index in range(2)
    ]
    assert [len(labels) for labels in found] == lengths
    assert len({*found[0], *found[1]}) == sum(lengths)
    assert found[0][:20] == [*range(10), *range(20, 30)]


def test_fewer_tar_files_than_shards_are_an_error(shards: list[str]):
    with pytest.raises(PlanError, match=r"5 files cannot be read by 8 processes\. Write smaller"):
        TarIterDataset(shards, shard_options=gristmill.ShardOptions(0, 8))
