"""The files of the rows about formats. They are written once and read by each process."""

import importlib
import struct
import tarfile
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

NUM_RECORDS = 200_000
RECORD_BYTES = 1_000
NUM_SHARDS = 8
BATCH_SIZE = 128

NUM_ROWS = 500_000
NUM_FEATURES = 16
ROW_GROUP = 20_000


def make_records(count: int = NUM_RECORDS) -> Iterator[bytes]:
    """Yield records that do not compress. The first 8 bytes of each are its number."""
    noise = np.random.default_rng(0).bytes(count + RECORD_BYTES)
    for number in range(count):
        yield struct.pack("<q", number) + noise[number : number + RECORD_BYTES - 8]


def shards(folder: Path, ending: str) -> list[str]:
    """Return the paths of the files with the records."""
    return [str(folder / f"{number}-of-{NUM_SHARDS}.{ending}") for number in range(NUM_SHARDS)]


def prepare_records(folder: Path) -> str:
    """Write the records as ArrayRecord, TFRecord and tar files."""
    per_shard = NUM_RECORDS // NUM_SHARDS
    records = list(make_records())
    contents = [records[first : first + per_shard] for first in range(0, NUM_RECORDS, per_shard)]
    for ending, write in WRITERS.items():
        for path, content in zip(shards(folder, ending), contents, strict=True):
            write(path, content)
    return f"{NUM_RECORDS:,} records of {RECORD_BYTES:,} bytes in {NUM_SHARDS} files of each format"


def _write_array_record(path: str, records: Sequence[bytes]) -> None:
    library: Any = importlib.import_module("array_record.python.array_record_module")
    writer = library.ArrayRecordWriter(path, "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()


def _write_tfrecord(path: str, records: Sequence[bytes]) -> None:
    tensorflow: Any = importlib.import_module("tensorflow")
    with tensorflow.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)


def _write_tar(path: str, records: Sequence[bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for number, record in enumerate(records):
            member = tarfile.TarInfo(f"{number:06d}.bin")
            member.size = len(record)
            archive.addfile(member, BytesIO(record))


WRITERS: dict[str, Callable[[str, Sequence[bytes]], None]] = {
    "array_record": _write_array_record,
    "tfrecord": _write_tfrecord,
    "tar": _write_tar,
}


def prepare_table(folder: Path) -> str:
    """Write two tables as Parquet files: one of numbers, and one that also has strings."""
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    features = np.random.default_rng(0).random((NUM_ROWS, NUM_FEATURES), np.float32)
    columns = {
        "id": arrow.array(np.arange(NUM_ROWS)),
        "features": arrow.FixedSizeListArray.from_arrays(
            arrow.array(features.reshape(-1)), NUM_FEATURES
        ),
        "label": arrow.array(np.arange(NUM_ROWS) % 1000),
    }
    strings = [f"the text of row {number} " * (1 + number % 9) for number in range(NUM_ROWS)]
    tables = {"numbers": columns, "strings": {**columns, "text": arrow.array(strings)}}
    for name, named in tables.items():
        parquet.write_table(arrow.table(named), table(folder, name), row_group_size=ROW_GROUP)
    return f"{NUM_ROWS:,} rows in row groups of {ROW_GROUP:,}, with and without strings"


def table(folder: Path, name: str) -> str:
    """Return the path of a table."""
    return str(folder / f"{name}.parquet")
