"""Every parser of files, a sample for it, and the reference library as its oracle.

An oracle returns all records as plain Python values, or raises. A parser must return the same
records or raise a `GristmillError`.
"""

import bz2
import gzip
import importlib
import io
import itertools
import json
import lzma
import sqlite3
import struct
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import zarr
import zstandard
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from google.protobuf.unknown_fields import UnknownFieldSet

from gristmill._api.adapters.tfds.png import decode_pngs, png_shape
from gristmill._data.example_proto.parse import parse_example
from gristmill._data.example_proto.serialize import format_example
from gristmill._data.sources.file_streams import ParquetStream, TFRecordStream
from gristmill._data.sources.records.tar.stream import TarStream
from gristmill._io.paths import find_file, find_files
from gristmill.errors import FormatError
from gristmill.sources import (
    ArrayRecordDataSource,
    ArrowSource,
    CsvSource,
    Hdf5Source,
    IdxSource,
    JsonArraySource,
    JsonLinesSource,
    LitDataSource,
    MdsSource,
    MegatronSource,
    NumpySource,
    ParquetSource,
    SqliteSource,
    TarSource,
    TextSource,
    TFRecordSource,
    ZarrSource,
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


def make_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        pixels = np.arange(60, dtype=np.float32).reshape(20, 3)
        file.create_dataset("x", data=pixels, chunks=(4, 3), compression="gzip", fletcher32=True)
        file["group/y"] = np.arange(20)
        # No strings of variable length: libhdf5 itself loops or crashes if they are damaged.
        text = np.array([b"text %d" % number for number in range(20)])
        file.create_dataset("text", data=text, chunks=(7,))


def load_hdf5(path: Path) -> Any:
    found: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape:
            found[name] = len(item), item[: min(len(item), MAX_RECORDS)]

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    return _zipped(found)


def _zipped(found: dict[str, tuple[int, Any]]) -> Any:
    """Return the length and the first records of arrays, each with its whole length."""
    lengths = {length for length, _ in found.values()}
    assert len(lengths) == 1
    rows = zip(*(values for _, values in found.values()), strict=True)
    return lengths.pop(), plain([dict(zip(found, row, strict=True)) for row in rows])


def in_zarr(kind: str, member: str, version: Any) -> Parser:
    """Return the parser of one file of a Zarr group, with the others around it."""

    def folder_of(path: Path) -> Path:
        folder = path.with_suffix(".folder")
        if not folder.exists():
            group = zarr.open_group(folder, mode="w", zarr_format=version)
            pixels = np.arange(60, dtype=np.float32).reshape(20, 3)
            group.create_array("x", data=pixels, chunks=(4, 3))
            group.create_array("y", data=np.arange(20), chunks=(20,))
        return folder

    def make(path: Path) -> None:
        path.write_bytes((folder_of(path) / member).read_bytes())

    def with_member(path: Path) -> Path:
        folder = folder_of(path)
        (folder / member).write_bytes(path.read_bytes())
        return folder

    def load(path: Path) -> Any:
        group = zarr.open_group(with_member(path), mode="r")
        members = sorted(group.members())
        arrays = {name: item for name, item in members if isinstance(item, zarr.Array)}
        return _zipped({name: (a.shape[0], a[:MAX_RECORDS]) for name, a in arrays.items()})

    return Parser(
        f".{kind}",
        make,
        lambda path: records(ZarrSource(with_member(path))),
        load,
        # The oracle opens groups only, and its group may have become an array.
        is_stricter_allowed=kind == "group",
    )


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


def make_json(path: Path) -> None:
    items = [{"a": i, "b": ["],", None, '\\\\é"'], "c": {"d": True}} for i in range(20)]
    path.write_text(json.dumps(items, indent=1, ensure_ascii=False))


def load_json(path: Path) -> Any:
    loaded = json.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    assert isinstance(loaded, list)
    return counted(loaded)


def make_text(path: Path) -> None:
    path.write_bytes("".join(f"line {i}\r\né\n\n" for i in range(20)).encode())


def load_text(path: Path) -> Any:
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    return counted([line.removesuffix(b"\r").decode() for line in lines])


def make_packed(pack: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        make_text(path)
        path.write_bytes(pack(path.read_bytes()))

    return make


def load_packed(unpack: Callable[[bytes], bytes]) -> Callable[[Path], Any]:
    def load(path: Path) -> Any:
        data = path.read_bytes()
        unpacked = path.with_suffix(".unpacked")
        unpacked.write_bytes(unpack(data))
        return load_text(unpacked)

    return load


def unpack_zstd(data: bytes) -> bytes:
    output = b""
    while data:
        decoder = zstandard.ZstdDecompressor().decompressobj()
        output += decoder.decompress(data)
        assert decoder.eof
        data = decoder.unused_data
    return output


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


def read_stream(stream: Any) -> Any:
    blocks = stream.read_from(stream.start)
    return counted([record for block, _ in blocks for record in block])


def make_array_record(path: Path) -> None:
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for number in range(20):
        writer.write(f"record {number} ".encode() * (number + 1))
    writer.close()


def load_array_record(path: Path) -> Any:
    reader = ArrayRecordReader(str(path), options="readahead_buffer_size:0")
    assert reader.ok()
    return counted(reader.read_all())


def make_megatron(path: Path) -> None:
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 20, 21)
    lengths = np.arange(20, dtype="<i4")
    starts = (np.cumsum(lengths) - lengths).astype("<i8") * 4
    path.write_bytes(head + lengths.tobytes() + starts.tobytes() + bytes(8 * 21))


def read_megatron(path: Path) -> Any:
    path.with_suffix(".bin").write_bytes(np.arange(190, dtype="<i4").tobytes())
    return records(MegatronSource(path))


def load_megatron(path: Path) -> Any:
    data, tokens = path.read_bytes(), np.arange(190, dtype="<i4").tobytes()
    magic, version, code, count, _ = struct.unpack_from("<9sQBQQ", data)
    assert (magic, version) == (b"MMIDIDX\0\0", 1)
    kind = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}[code]
    size = np.dtype(kind).itemsize
    lengths = struct.unpack_from(f"<{count}i", data, 34)
    starts = struct.unpack_from(f"<{count}q", data, 34 + 4 * count)
    found = []
    for length, start in zip(lengths, starts, strict=True):
        assert 0 <= start <= start + length * size <= len(tokens)
        found.append(np.frombuffer(tokens[start : start + length * size], kind))
    return counted(found)


_MDS_COLUMNS = {
    "text": "str",
    "count": "int",
    "data": "bytes",
    "x": "ndarray:float32:3",
    "j": "json",
}


_LITDATA_KINDS = ["int", "str", "numpy", "json"]


def encode_litdata() -> list[bytes]:
    encoded: list[bytes] = []
    for number in range(20):
        array = struct.pack("<4I", 9, 2, 1, 3) + np.full(3, number, "<f4").tobytes()
        nested = b"\x05\x01\0\0\0\x01\0\0\0a\x02\x01\0\0\0" + struct.pack("<q", number)
        leaves = [struct.pack("<q", number), f"text {number}".encode(), array, nested]
        encoded.append(struct.pack("<4I", *map(len, leaves)) + b"".join(leaves))
    return encoded


def make_litdata(path: Path) -> None:
    encoded = encode_litdata()
    ends = np.cumsum([4 + 4 * (len(encoded) + 1), *map(len, encoded)])
    path.write_bytes(struct.pack(f"<I{len(ends)}I", len(encoded), *ends) + b"".join(encoded))


def make_litdata_groups(path: Path) -> None:
    """Write groups of five items, each compressed as a whole."""
    encoded = encode_litdata()
    packed = [
        (
            encoded[first : first + 5],
            zstandard.ZstdCompressor().compress(b"".join(encoded[first : first + 5])),
        )
        for first in range(0, 20, 5)
    ]
    head = struct.pack("<8s2H3I", b"LDFZ01\0\0", 1, 0, 20, 5, 4)
    offsets = np.cumsum([0, *map(len, encoded)]).astype("<u4").tobytes()
    at = len(head) + len(offsets) + 4 * 24
    groups = b""
    for number, (items, data) in enumerate(packed):
        groups += struct.pack("<2IQ2I", 5 * number, 5, at, len(data), len(b"".join(items)))
        at += len(data)
    path.write_bytes(head + offsets + groups + b"".join(data for _, data in packed))


def make_litdata_index(path: Path) -> None:
    leaf = {"type": None, "context": None, "children_spec": []}
    tree = {"type": "builtins.list", "context": "null", "children_spec": [leaf] * 4}
    config = {"data_format": _LITDATA_KINDS, "data_spec": json.dumps([1, tree])}
    chunks = [{"chunk_size": 20, "filename": "0.bin"}]
    path.write_text(json.dumps({"chunks": chunks, "config": config}, indent=1))


def read_litdata(path: Path) -> Any:
    folder = path.with_suffix(".folder")
    folder.mkdir(exist_ok=True)
    make_litdata_index(folder / "index.json")
    (folder / "0.bin").write_bytes(path.read_bytes())
    return records(LitDataSource(folder))


def read_litdata_index(path: Path) -> Any:
    folder = path.with_suffix(".folder")
    folder.mkdir(exist_ok=True)
    make_litdata(folder / "0.bin")
    (folder / "index.json").write_bytes(path.read_bytes())
    return records(LitDataSource(folder))


def load_litdata_index(path: Path) -> Any:
    index = json.loads(path.read_bytes())
    (chunk,) = index["chunks"]
    count, found = load_litdata(path.with_suffix(".folder") / "0.bin")
    assert (index["config"]["data_format"], chunk["chunk_size"]) == (_LITDATA_KINDS, count)
    version, tree = json.loads(index["config"]["data_spec"])
    assert (version, tree["type"], len(tree["children_spec"])) == (1, "builtins.list", 4)
    return count, found


def load_litdata(path: Path) -> Any:
    data = path.read_bytes()
    assert struct.unpack_from("<I", data) == (20,)
    ends = struct.unpack_from("<21I", data, 4)
    assert ends[0] >= 88
    assert ends[-1] <= len(data)
    return _load_items(data, ends)


def load_litdata_groups(path: Path) -> Any:
    data = path.read_bytes()
    head = struct.unpack_from("<8s2H3I", data)
    assert head[:2] + head[3:4] + head[5:] == (b"LDFZ01\0\0", 1, 20, 4)
    ends = struct.unpack_from("<21I", data, 24)
    content = b""
    for number in range(4):
        first, count, at, size, raw = struct.unpack_from("<2IQ2I", data, 108 + 24 * number)
        assert (first, at + size <= len(data)) == (5 * number, True)
        group = zstandard.ZstdDecompressor().decompress(data[at : at + size])
        assert len(group) == raw == ends[first + count] - ends[first]
        content += group
    return _load_items(content, [end - ends[0] for end in ends])


def _load_items(data: bytes, ends: Sequence[int]) -> Any:
    found: list[Any] = []
    for start, stop in itertools.pairwise(ends):
        assert start + 16 <= stop <= len(data)
        body = io.BytesIO(data[start:stop])
        sizes = struct.unpack("<4I", body.read(16))
        leaves = [body.read(size) for size in sizes]
        assert tuple(map(len, leaves)) == sizes
        assert not body.read()
        (number,) = struct.unpack("<q", leaves[0])
        dtype, num_axes = struct.unpack("<2I", leaves[2][:8])
        shape = struct.unpack(f"<{num_axes}I", leaves[2][8 : 8 + 4 * num_axes])
        names = "i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 b1".split()  # noqa: SIM905
        array = np.frombuffer(leaves[2][8 + 4 * num_axes :], names[dtype]).reshape(shape)
        found.append([number, leaves[1].decode(), array, _load_nested(io.BytesIO(leaves[3]))])
    return counted(found)


def _load_nested(body: io.BytesIO) -> Any:
    """Decode a value of LitData's nested form: only what `make_litdata` writes is allowed."""
    tag, count = struct.unpack("<BI", body.read(5))
    assert (tag, count) == (5, 1)
    (size,) = struct.unpack("<I", body.read(4))
    key = body.read(size)
    assert len(key) == size
    assert body.read(1) == b"\x02"
    (size,) = struct.unpack("<I", body.read(4))
    values = list(struct.unpack(f"<{size}q", body.read()))
    return {key.decode(): values}


def make_mds(path: Path) -> None:
    encoded: list[bytes] = []
    for number in range(20):
        text, data = f"text {number}".encode(), bytes(number)
        document = json.dumps({"a": number}).encode()
        sizes = struct.pack("<3I", len(text), len(data), len(document))
        pixels = np.full(3, number, "<f4").tobytes()
        encoded.append(sizes + text + struct.pack("<q", number) + data + pixels + document)
    ends = np.cumsum([4 + 4 * (len(encoded) + 1), *map(len, encoded)])
    path.write_bytes(struct.pack(f"<I{len(ends)}I", len(encoded), *ends) + b"".join(encoded))


def make_mds_index(path: Path) -> None:
    shard = {
        "format": "mds",
        "version": 2,
        "samples": 20,
        "raw_data": {"basename": "0.mds", "bytes": 1000, "hashes": {}},
        "zip_data": None,
        "column_names": list(_MDS_COLUMNS),
        "column_encodings": list(_MDS_COLUMNS.values()),
        "column_sizes": [None, 8, None, 12, None],
    }
    path.write_text(json.dumps({"shards": [shard], "version": 2}, indent=1))


def read_mds(path: Path) -> Any:
    folder = path.with_suffix(".folder")
    folder.mkdir(exist_ok=True)
    make_mds_index(folder / "index.json")
    (folder / "0.mds").write_bytes(path.read_bytes())
    return records(MdsSource(folder))


def load_mds(path: Path) -> Any:
    data = path.read_bytes()
    assert struct.unpack_from("<I", data) == (20,)
    ends = struct.unpack_from("<21I", data, 4)
    found: list[dict[str, Any]] = []
    assert ends[0] >= 88
    for start, stop in itertools.pairwise(ends):
        assert start + 12 <= stop <= len(data)
        body = io.BytesIO(data[start:stop])
        sizes = struct.unpack("<3I", body.read(12))
        parts = [body.read(size) for size in (sizes[0], 8, sizes[1], 12, sizes[2])]
        assert tuple(len(part) for part in parts) == (sizes[0], 8, sizes[1], 12, sizes[2])
        assert not body.read()
        (count,) = struct.unpack("<q", parts[1])
        pixels = list(struct.unpack("<3f", parts[3]))
        values = [parts[0].decode(), count, parts[2], pixels, json.loads(parts[4].decode())]
        found.append(dict(zip(_MDS_COLUMNS, values, strict=True)))
    return counted(found)


def read_mds_index(path: Path) -> Any:
    folder = path.with_suffix(".folder")
    folder.mkdir(exist_ok=True)
    make_mds(folder / "0.mds")
    (folder / "index.json").write_bytes(path.read_bytes())
    return records(MdsSource(folder))


def load_mds_index(path: Path) -> Any:
    (shard,) = json.loads(path.read_bytes())["shards"]
    columns = dict(zip(shard["column_names"], shard["column_encodings"], strict=True))
    assert list(columns.values()) == list(_MDS_COLUMNS.values())
    folder = path.with_suffix(".folder")
    count, found = load_mds(folder / "0.mds")
    assert shard["samples"] == count
    return count, [dict(zip(columns, record.values(), strict=True)) for record in found]


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


def load_parquet_stream(path: Path) -> Any:
    file = pq.ParquetFile(path, page_checksum_verification=True)
    found: list[Any] = []
    for number in range(file.num_row_groups):
        table = file.read_row_group(number)
        columns = [table.column(index).to_numpy() for index in range(table.num_columns)]
        found += [
            dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)
        ]
    return counted(found)


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


def read_pngs(path: Path) -> Any:
    """Decode images of a dataset together, as TFDS and Hugging Face do."""
    data = path.read_bytes()
    shape = png_shape(data)
    if shape is None or 3 * shape[0] * shape[1] > 2**24:
        raise FormatError("This kind is decoded by Pillow.")
    (pixels, _), (is_decoded, _) = decode_pngs([data, data], shape)
    if not is_decoded:
        raise FormatError("This image is decoded by Pillow.")
    pixels = np.broadcast_to(pixels, (*shape[:2], 3))
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
    "hdf5": Parser(".h5", make_hdf5, lambda path: records(Hdf5Source(path)), load_hdf5),
    **{
        f"zarr{version}-{kind}": in_zarr(kind, member, version)
        for version, kind, member in [
            (2, "metadata", "x/.zarray"),
            (2, "chunk", "x/1.0"),
            (3, "metadata", "x/zarr.json"),
            (3, "chunk", "x/c/1/0"),
            (3, "group", "zarr.json"),
        ]
    },
    "idx": Parser(".idx", make_idx, lambda path: records(IdxSource(path)), load_idx),
    "idx-gz": Parser(".gz", make_idx_gz, lambda path: records(IdxSource(path)), load_idx),
    # pyarrow refuses a whole file for one record; gristmill only the block that contains it.
    "csv": Parser(".csv", make_csv, read_csv, load_csv, is_stricter_allowed=True),
    "jsonl": Parser(".jsonl", make_jsonl, lambda path: records(JsonLinesSource(path)), load_jsonl),
    # `json.loads` refuses a whole file for one item; gristmill only the item.
    "json": Parser(
        ".json",
        make_json,
        lambda path: records(JsonArraySource(path)),
        load_json,
        is_stricter_allowed=True,
    ),
    "text": Parser(".txt", make_text, lambda path: records(TextSource(path)), load_text),
    # A file whose magic bytes are gone is one that is not compressed.
    **{
        f"text{suffix}": Parser(
            f".txt{suffix}",
            make_packed(pack),
            lambda path: records(TextSource(path)),
            load_packed(unpack),
            is_stricter_allowed=True,
        )
        for suffix, pack, unpack in [
            (".gz", lambda data: gzip.compress(data, mtime=0), gzip.decompress),
            (".bz2", bz2.compress, bz2.decompress),
            (".xz", lzma.compress, lzma.decompress),
            (".zst", zstandard.ZstdCompressor(write_checksum=True).compress, unpack_zstd),
        ]
    },
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
    # The oracle knows one of many forms of a nested value.
    "litdata": Parser(".bin", make_litdata, read_litdata, load_litdata, is_stricter_allowed=True),
    "litdata-groups": Parser(
        ".bin", make_litdata_groups, read_litdata, load_litdata_groups, is_stricter_allowed=True
    ),
    "litdata-index": Parser(
        ".json",
        make_litdata_index,
        read_litdata_index,
        load_litdata_index,
        is_stricter_allowed=True,  # an index may describe the items in other ways
    ),
    "mds": Parser(".mds", make_mds, read_mds, load_mds),
    # An index may describe the records in other ways.
    "mds-index": Parser(
        ".json", make_mds_index, read_mds_index, load_mds_index, is_stricter_allowed=True
    ),
    "megatron": Parser(".idx", make_megatron, read_megatron, load_megatron),
    # tarfile refuses members that are no part of a record, such as links without a target.
    "tar": Parser(
        ".tar",
        make_tar,
        lambda path: records(TarSource(path)),
        load_tar,
        is_stricter_allowed=True,
    ),
    "tar-stream": Parser(
        ".tar",
        make_tar,
        lambda path: read_stream(TarStream(find_files(path))),
        load_tar,
        is_stricter_allowed=True,  # as above
    ),
    "tfrecord-stream": Parser(
        ".tfrecord",
        make_tfrecord,
        lambda path: read_stream(TFRecordStream(find_file(path))),
        load_tfrecord,
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
    "parquet-stream": Parser(
        ".parquet",
        make_parquet,
        lambda path: read_stream(ParquetStream(find_file(path))),
        load_parquet_stream,
    ),
    "sqlite": Parser(".sqlite", make_sqlite, read_sqlite, load_sqlite),
    "png": Parser(".png", make_png, read_image, load_image),
    "pngs": Parser(".png", make_png, read_pngs, load_image),
    "jpeg": Parser(".jpg", make_jpeg, read_image, load_image),
}
