"""Every parser of files, a sample for it, and the reference library as its oracle.

An oracle returns all records as plain Python values, or raises. A parser must return the same
records or raise a `GristmillError`.
"""

import gzip
import importlib
import io
import json
import sqlite3
import struct
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from google.protobuf.unknown_fields import UnknownFieldSet

from gristmill._data.example_proto.parse import parse_example
from gristmill._data.example_proto.serialize import format_example
from gristmill.sources import (
    ArrayRecordDataSource,
    ArrowSource,
    CsvSource,
    IdxSource,
    JsonLinesSource,
    NumpySource,
    ParquetSource,
    SqliteSource,
    TarSource,
    TFRecordSource,
)
from gristmill.transforms import DecodeImage

MAX_RECORDS = 2000
"""Records to compare; a mutated header may announce more."""


@dataclass(frozen=True)
class Parser:
    """How to make a sample, read it with gristmill, and read it with the reference library."""

    suffix: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    oracle: Callable[[Path], Any]
    is_stricter_allowed: bool = False
    """Whether the oracle may refuse what gristmill reads, with the reason in a comment."""


def plain(value: Any) -> Any:
    """Return Python values of one type for each kind of value, for a comparison by `repr`."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def records(source: Any) -> Any:
    count = min(len(source), MAX_RECORDS)
    together = plain(list(source.__getitems__(range(count))))
    for index in {0, count // 2, count - 1} if count else ():
        assert repr(plain(source[index])) == repr(together[index]), "alone and in a block differ"
    return len(source), together


def counted(values: Any) -> Any:
    return len(values), plain(list(values[:MAX_RECORDS]))


# arrays


def make_npy(path: Path) -> None:
    np.save(path, np.arange(60, dtype=np.float32).reshape(20, 3))


def load_npy(path: Path) -> Any:
    return counted(np.load(path, allow_pickle=False))


def make_npz(path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, x=np.arange(20), y=np.arange(40, dtype=np.int16).reshape(20, 2))


def make_compressed_npz(path: Path) -> None:
    with open(path, "wb") as file:
        np.savez_compressed(file, x=np.arange(20), y=np.arange(40, dtype=np.int16).reshape(20, 2))


def load_npz(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as loaded:
        arrays = {name: loaded[name] for name in loaded.files}
    rows = zip(*arrays.values(), strict=True)
    return counted([dict(zip(arrays, row, strict=True)) for row in rows])


def make_idx(path: Path) -> None:
    header = bytes([0, 0, 0x0B, 2]) + struct.pack(">II", 20, 3)
    path.write_bytes(header + np.arange(60, dtype=">i2").tobytes())


def make_idx_gz(path: Path) -> None:
    make_idx(path)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def load_idx(path: Path) -> Any:
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    types = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
    assert data[:2] == b"\0\0"
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    items = np.frombuffer(data[4 + 4 * data[3] :], types[data[2]])
    return counted(items.reshape(shape))


# text


def make_csv(path: Path) -> None:
    path.write_text("a,b\n" + "".join(f'{i},"text ""{i}"",\nmore"\n' for i in range(20)))


def read_csv(path: Path) -> Any:
    return records(CsvSource(path))


def load_csv(path: Path) -> Any:
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    nulls = ["", "NA", "N/A", "#N/A", "NULL", "null"]
    convert = pyarrow.csv.ConvertOptions(null_values=nulls)
    table = pyarrow.csv.read_csv(path, parse_options=options, convert_options=convert)
    for number, field in enumerate(table.schema):
        if pa.types.is_null(field.type):  # a column without values is one of strings
            empty = pa.array([""] * len(table))
            table = table.set_column(number, field.name, empty)
    return len(table), [
        {name: _as_value(value) for name, value in row.items()} for row in table.to_pylist()
    ]


def _as_value(value: Any) -> Any:
    return plain(np.asarray(value)) if type(value).__name__ in ("date", "datetime") else value


def make_jsonl(path: Path) -> None:
    rows = [{"a": i, "b": [1.5, None, "é"], "c": {"d": True}} for i in range(20)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def load_jsonl(path: Path) -> Any:
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return counted([json.loads(line) for line in lines if line.strip(b" \t\r\n")])


# records


def make_tfrecord(path: Path) -> None:
    with open(path, "wb") as file:
        for number in range(20):
            record = f"record {number} ".encode() * number
            length = struct.pack("<Q", len(record))
            file.write(length + _masked(length) + record + _masked(record))


def _masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def load_tfrecord(path: Path) -> Any:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        head = data[at : at + 12]
        assert len(head) == 12
        assert _masked(head[:8]) == head[8:]
        stop = at + 12 + int.from_bytes(head[:8], "little")
        record, tail = data[at + 12 : stop], data[stop : stop + 4]
        assert _masked(record) == tail
        found.append(record)
        at = stop + 4
    return counted(found)


def make_array_record(path: Path) -> None:
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for number in range(20):
        writer.write(f"record {number} ".encode() * (number + 1))
    writer.close()


def load_array_record(path: Path) -> Any:
    reader = ArrayRecordReader(str(path), options="readahead_buffer_size:0")
    assert reader.ok()
    return counted(reader.read_all())


def make_tar(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(6):
            for extension in ("txt", "cls"):
                content = f"{extension} {number}".encode() * 40
                info = tarfile.TarInfo(
                    f"{'long' * 40 if number == 3 else 'key'}{number}.{extension}"
                )
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


def load_tar(path: Path) -> Any:
    found: list[dict[str, Any]] = []
    with tarfile.open(path, "r:", errorlevel=2) as archive:
        for member in archive:
            folder, _, name = member.name.rpartition("/")
            key, dot, extension = name.partition(".")
            top = member.name.partition("/")[0]
            is_meta = len(top) >= 4 and top.startswith("__") and top.endswith("__")
            if not member.isreg() or not key or not dot or is_meta:
                continue
            key = f"{folder}/{key}" if "/" in member.name else key
            if not found or found[-1]["__key__"] != key:
                found.append({"__key__": key})
            file = archive.extractfile(member)
            assert file is not None
            found[-1][extension.lower()] = file.read()
    return counted(found)


def make_example(path: Path) -> None:
    features = {"a": [1, 2, 300], "b": [1.5, 2.5], "c": ["x", "yz"], "d": b"bytes"}
    path.write_bytes(format_example(features))


def read_example(path: Path) -> Any:
    return plain(dict(sorted(parse_example(path.read_bytes()).items())))


def load_example(path: Path) -> Any:
    # Only here, because it imports JAX.
    protobuf = importlib.import_module("tests.data.example_proto.test_parse")
    data = path.read_bytes()
    if len(UnknownFieldSet(protobuf.Example.FromString(data).features)):
        raise ValueError("protobuf's C library moves entries with unknown fields elsewhere")
    return plain(dict(sorted(protobuf.by_protobuf(data).items())))


# tables


def table() -> pa.Table:
    return pa.table(
        {
            "number": pa.array(range(100), pa.int64()),
            "maybe": pa.array([None if i % 7 == 0 else i / 2 for i in range(100)], pa.float32()),
            "text": [f"text {i}" for i in range(100)],
            "list": [[i] * (i % 3) for i in range(100)],
        }
    )


def make_arrow(path: Path) -> None:
    with pa.ipc.new_file(path, table().schema) as writer:
        writer.write_table(table(), max_chunksize=10)


def make_arrow_stream(path: Path) -> None:
    with pa.ipc.new_stream(path, table().schema) as writer:
        writer.write_table(table(), max_chunksize=10)


def load_arrow(path: Path) -> Any:
    data = path.read_bytes()
    if data.startswith(b"ARROW1"):
        loaded = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    else:
        loaded = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
    loaded.validate(full=True)
    return len(loaded), plain(loaded.to_pylist())


def make_parquet(path: Path) -> None:
    pq.write_table(table(), path, row_group_size=25, write_page_checksum=True)


def load_parquet(path: Path) -> Any:
    loaded = pq.read_table(path, page_checksum_verification=True)
    return len(loaded), plain(loaded.to_pylist())


def make_sqlite(path: Path) -> None:
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a INTEGER, b TEXT, c BLOB)")
    rows = [(i, f"text {i}", b"x" * i) for i in range(100)]
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()


def read_sqlite(path: Path) -> Any:
    return records(SqliteSource(path, table="t"))


def load_sqlite(path: Path) -> Any:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        cursor = connection.execute("SELECT * FROM t ORDER BY rowid")
        names = [column[0] for column in cursor.description]
        return counted([dict(zip(names, row, strict=True)) for row in cursor])
    finally:
        connection.close()


# images


def _make_image(path: Path, kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)
    PIL.Image.fromarray(pixels).save(path, kind)


def make_png(path: Path) -> None:
    _make_image(path, "PNG")


def make_jpeg(path: Path) -> None:
    _make_image(path, "JPEG")


def read_image(path: Path) -> Any:
    pixels = DecodeImage(key=None).map(path.read_bytes())
    return pixels.shape, pixels.tobytes()


def load_image(path: Path) -> Any:
    with PIL.Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    return pixels.shape, pixels.tobytes()


PARSERS = {
    "npy": Parser(".npy", make_npy, lambda path: records(NumpySource(path)), load_npy),
    "npz": Parser(".npz", make_npz, lambda path: records(NumpySource(path)), load_npz),
    "npz-compressed": Parser(
        ".npz", make_compressed_npz, lambda path: records(NumpySource(path)), load_npz
    ),
    "idx": Parser(".idx", make_idx, lambda path: records(IdxSource(path)), load_idx),
    "idx-gz": Parser(".gz", make_idx_gz, lambda path: records(IdxSource(path)), load_idx),
    # pyarrow refuses a whole file for one record; gristmill only the block that contains it.
    "csv": Parser(".csv", make_csv, read_csv, load_csv, is_stricter_allowed=True),
    "jsonl": Parser(".jsonl", make_jsonl, lambda path: records(JsonLinesSource(path)), load_jsonl),
    "tfrecord": Parser(
        ".tfrecord", make_tfrecord, lambda path: records(TFRecordSource(path)), load_tfrecord
    ),
    "array_record": Parser(
        ".array_record",
        make_array_record,
        lambda path: records(ArrayRecordDataSource(path)),
        load_array_record,
        # `read_all` of the library checks more of the file than reading records by index does.
        is_stricter_allowed=True,
    ),
    # tarfile refuses members that are no part of a record, such as links without a target.
    "tar": Parser(
        ".tar",
        make_tar,
        lambda path: records(TarSource(path)),
        load_tar,
        is_stricter_allowed=True,
    ),
    "example": Parser(
        # With unknown fields in an entry, the implementations of protobuf differ.
        ".pb",
        make_example,
        read_example,
        load_example,
        is_stricter_allowed=True,
    ),
    "arrow": Parser(".arrow", make_arrow, lambda path: records(ArrowSource(path)), load_arrow),
    "arrow-stream": Parser(
        ".arrow", make_arrow_stream, lambda path: records(ArrowSource(path)), load_arrow
    ),
    "parquet": Parser(
        ".parquet", make_parquet, lambda path: records(ParquetSource(path)), load_parquet
    ),
    "sqlite": Parser(".sqlite", make_sqlite, read_sqlite, load_sqlite),
    "png": Parser(".png", make_png, read_image, load_image),
    "jpeg": Parser(".jpg", make_jpeg, read_image, load_image),
}
