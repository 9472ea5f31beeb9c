"""The stream over a faulty store equals the stream over the same local files."""

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import sqlite3
import struct
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
import zstandard
from array_record.python.array_record_module import ArrayRecordWriter
from zarr.codecs import BloscCodec

from gristmill import DataLoader, IndexSampler, MapDataset, WorkerOptions
from gristmill._data.sources.arrays.hdf5 import Hdf5Source
from gristmill._data.sources.arrays.idx import IdxSource
from gristmill._data.sources.arrays.numpy import NumpySource
from gristmill._data.sources.arrays.zarr import ZarrSource
from gristmill._data.sources.records.array_record import ArrayRecordDataSource
from gristmill._data.sources.records.image_folder import ImageFolderSource
from gristmill._data.sources.records.index_json.litdata import LitDataSource
from gristmill._data.sources.records.index_json.mds import MdsSource
from gristmill._data.sources.records.megatron import MegatronSource
from gristmill._data.sources.records.tar.tar import TarSource
from gristmill._data.sources.records.text.json_array import JsonArraySource
from gristmill._data.sources.records.text.jsonl import JsonLinesSource
from gristmill._data.sources.records.text.plain_text import TextSource
from gristmill._data.sources.records.tfrecord import TFRecordSource
from gristmill._data.sources.sqlite.source import SqliteSource
from gristmill._data.sources.tables.arrow_ipc import ArrowSource
from gristmill._data.sources.tables.csv import CsvSource
from gristmill._data.sources.tables.hugging_face import HuggingFaceSource
from gristmill._data.sources.tables.parquet import ParquetSource
from gristmill.options import StorageOptions
from tests.io.servers import (
    at_random,
    closes_midway,
    fails_with,
    ignores_range,
    resets_midway,
    returns_less,
)

FAULTS = at_random(
    0.25,
    fails_with(500),
    fails_with(503),
    resets_midway,
    closes_midway,
    returns_less,
    ignores_range,
)

Address = Callable[[str], str]


def rows(count: int, *, seed: int) -> dict[str, list[Any]]:
    rng = random.Random(seed)
    return {
        "id": list(range(count)),
        "weight": [rng.random() for _ in range(count)],
        "text": [f"{rng.getrandbits(64):x}" * rng.randrange(4) for _ in range(count)],
    }


def payloads(count: int, *, seed: int) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(rng.randrange(3000)) for _ in range(count)]


# One function per format, which writes the data into a folder.


def write_array_record(folder: Path) -> None:
    for number in range(2):
        writer = ArrayRecordWriter(str(folder / f"{number}.array_record"), "group_size:1")
        for payload in payloads(15, seed=number):
            writer.write(payload + b".")
        writer.close()


def write_tfrecord(folder: Path) -> None:
    def masked(data: bytes) -> bytes:
        crc = google_crc32c.value(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    for number in range(2):
        with (folder / f"{number}.tfrecord").open("wb") as file:
            for payload in payloads(20, seed=number):
                length = struct.pack("<Q", len(payload))
                file.write(length + masked(length) + payload + masked(payload))


def write_parquet(folder: Path) -> None:
    for number in range(2):
        table = pa.table(rows(25, seed=number))
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=8)


def write_numeric_parquet(folder: Path) -> None:
    table = pa.table(rows(30, seed=0)).drop_columns(["text"])
    pq.write_table(table, folder / "0.parquet", row_group_size=8)


def write_arrow(folder: Path) -> None:
    table = pa.table(rows(25, seed=0))
    with pa.ipc.new_file(str(folder / "0.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=8)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(str(folder / "1.arrow"), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=9)


def write_hugging_face(folder: Path) -> None:
    table = pa.table(rows(25, seed=0))
    with pa.ipc.new_stream(str(folder / "data-00000-of-00001.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=8)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def write_csv(folder: Path) -> None:
    for number in range(2):
        columns = rows(25, seed=number)
        with (folder / f"{number}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))


def write_json_lines(folder: Path) -> None:
    for number in range(2):
        columns = rows(25, seed=number)
        records = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
        (folder / f"{number}.jsonl").write_text(
            "".join(json.dumps(record) + "\n" for record in records)
        )


def write_json_array(folder: Path) -> None:
    for number in range(2):
        (folder / f"{number}.json").write_text(json.dumps(rows(25, seed=number)["text"]))


def write_text(folder: Path) -> None:
    for number in range(2):
        (folder / f"{number}.txt").write_text("\n".join(rows(25, seed=number)["text"]))


def write_compressed(folder: Path) -> None:
    lines = "".join(f'{{"id": {i}, "text": "{"word " * i}"}}\n' for i in range(30)).encode()
    (folder / "0.jsonl.gz").write_bytes(gzip.compress(lines))
    (folder / "1.jsonl.zst").write_bytes(zstandard.compress(lines))
    (folder / "2.jsonl.bz2").write_bytes(bz2.compress(lines))
    (folder / "3.jsonl.xz").write_bytes(lzma.compress(lines))


def write_megatron(folder: Path) -> None:
    tokens = [np.arange(number, dtype="<i4") for number in range(20)]
    lengths = np.array([len(sequence) for sequence in tokens], "<i4")
    starts = (np.cumsum(lengths) - lengths).astype("<i8") * 4
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 20, 1)
    (folder / "0.idx").write_bytes(head + lengths.tobytes() + starts.tobytes() + bytes(8))
    (folder / "0.bin").write_bytes(np.concatenate(tokens).tobytes())


def write_litdata(folder: Path) -> None:
    items = [struct.pack("<I", len(data)) + data for data in payloads(20, seed=0)]
    ends = np.cumsum([4 * 22, *map(len, items)]).astype("<u4")
    data = struct.pack("<I", 20) + ends.tobytes() + b"".join(items)
    (folder / "0.zstd.bin").write_bytes(zstandard.compress(data))
    leaf = '[1, {"type": null, "context": null, "children_spec": []}]'
    config = {"data_format": ["bytes"], "data_spec": leaf}
    chunk = {"chunk_size": 20, "filename": "0.zstd.bin"}
    (folder / "index.json").write_text(json.dumps({"chunks": [chunk], "config": config}))


def write_mds(folder: Path) -> None:
    records = [
        struct.pack("<Iq", len(data), i) + data for i, data in enumerate(payloads(20, seed=0))
    ]
    ends = np.cumsum([4 * 22, *map(len, records)]).astype("<u4")
    data = struct.pack("<I", 20) + ends.tobytes() + b"".join(records)
    (folder / "0.mds.zstd").write_bytes(zstandard.compress(data))
    shard = {
        "column_encodings": ["int", "bytes"],
        "column_names": ["id", "data"],
        "column_sizes": [8, None],
        "format": "mds",
        "raw_data": {"basename": "0.mds"},
        "zip_data": {"basename": "0.mds.zstd"},
        "samples": 20,
        "version": 2,
    }
    (folder / "index.json").write_text(json.dumps({"shards": [shard]}))


def write_tar(folder: Path) -> None:
    for number in range(2):
        with tarfile.open(folder / f"{number}.tar", "w") as archive:
            for key, payload in enumerate(payloads(12, seed=number)):
                for name, data in [("jpg", payload), ("cls", str(key).encode())]:
                    member = tarfile.TarInfo(f"{number}/{key:04}.{name}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


def write_npy(folder: Path) -> None:
    for number in range(2):
        np.save(folder / f"{number}.npy", np.random.default_rng(number).random((15, 7)))


def write_npz(folder: Path) -> None:
    generator = np.random.default_rng(0)
    np.savez(folder / "0.npz", x=generator.random((20, 5)), y=generator.integers(0, 9, 20))


def write_hdf5(folder: Path) -> None:
    for number in range(2):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            data = np.random.default_rng(number).random((15, 7))
            file.create_dataset("x", data=data, chunks=(4, 7), compression="gzip")


def write_idx(folder: Path) -> None:
    data = random.Random(0).randbytes(20 * 12)
    (folder / "0.idx").write_bytes(struct.pack(">HBB3I", 0, 8, 3, 20, 4, 3) + data)


def write_sqlite(folder: Path) -> None:
    columns = rows(30, seed=0)
    connection = sqlite3.connect(folder / "0.sqlite")
    with connection:
        connection.execute("CREATE TABLE items (id INTEGER, weight REAL, text TEXT)")
        values = list(zip(*columns.values(), strict=True))
        connection.executemany("INSERT INTO items VALUES (?, ?, ?)", values)
    connection.close()


def write_images(folder: Path) -> None:
    for name in ("cat", "dog"):
        (folder / name).mkdir()
        for number, payload in enumerate(payloads(6, seed=len(name))):
            (folder / name / f"{number}.png").write_bytes(payload)


def write_zarr(folder: Path) -> None:
    numbers = np.arange(90, dtype=np.int32).reshape(30, 3)
    zarr.create_array(folder / "a.zarr", data=numbers, chunks=(4, 3))
    zarr.create_array(folder / "blosc.zarr", data=numbers, chunks=(4, 3), compressors=BloscCodec())
    zarr.create_array(folder / "shards.zarr", data=numbers, chunks=(2, 3), shards=(10, 3))
    group = zarr.open_group(folder / "group.zarr", mode="w")
    group.create_array("x", data=numbers, chunks=(4, 3))
    group.create_array("inner/y", data=numbers[:, 0].astype(np.float64), chunks=(7,))


@dataclass(frozen=True)
class Case:
    """A source and its files."""

    kind: Callable[..., Any]
    write: Callable[[Path], None]
    where: str | list[str]
    """The names of the files in a folder."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    needs_listing: bool = False
    """Whether the store must list folders, which HTTP does not support."""

    def open(self, address: Address, storage: StorageOptions | None = None) -> Any:
        """Create the source over files in a folder or a store."""
        where = address(self.where) if isinstance(self.where, str) else [*map(address, self.where)]
        return self.kind(where, **self.options, storage=storage)


CASES = {
    "ArrayRecord": Case(
        ArrayRecordDataSource, write_array_record, ["0.array_record", "1.array_record"]
    ),
    "TFRecord": Case(TFRecordSource, write_tfrecord, ["0.tfrecord", "1.tfrecord"]),
    "Parquet": Case(ParquetSource, write_parquet, ["0.parquet", "1.parquet"]),
    "Parquet, numbers": Case(ParquetSource, write_numeric_parquet, "0.parquet"),
    "Arrow": Case(ArrowSource, write_arrow, ["0.arrow", "1.arrow"]),
    "Hugging Face": Case(HuggingFaceSource, write_hugging_face, ""),
    "CSV": Case(CsvSource, write_csv, ["0.csv", "1.csv"]),
    "JSON Lines": Case(JsonLinesSource, write_json_lines, ["0.jsonl", "1.jsonl"]),
    "JSON array": Case(JsonArraySource, write_json_array, ["0.json", "1.json"]),
    "text": Case(TextSource, write_text, ["0.txt", "1.txt"]),
    "compressed": Case(
        JsonLinesSource,
        write_compressed,
        ["0.jsonl.gz", "1.jsonl.zst", "2.jsonl.bz2", "3.jsonl.xz"],
    ),
    "Megatron": Case(MegatronSource, write_megatron, "0.idx"),
    "LitData": Case(LitDataSource, write_litdata, ""),
    "MDS": Case(MdsSource, write_mds, ""),
    "tar": Case(TarSource, write_tar, ["0.tar", "1.tar"]),
    "npy": Case(NumpySource, write_npy, ["0.npy", "1.npy"]),
    "npz": Case(NumpySource, write_npz, "0.npz"),
    "HDF5": Case(Hdf5Source, write_hdf5, ["0.h5", "1.h5"]),
    "idx": Case(IdxSource, write_idx, "0.idx"),
    "Zarr array": Case(ZarrSource, write_zarr, "a.zarr"),
    "Zarr, Blosc": Case(ZarrSource, write_zarr, "blosc.zarr"),
    "Zarr shards": Case(ZarrSource, write_zarr, "shards.zarr"),
    "Zarr group": Case(ZarrSource, write_zarr, "group.zarr", needs_listing=True),
    "SQLite": Case(SqliteSource, write_sqlite, "0.sqlite", {"table": "items"}),
    "images": Case(ImageFolderSource, write_images, "", needs_listing=True),
}


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    """Return each case, with its files written to `tmp_path`."""
    request.param.write(tmp_path)
    return request.param


def stream(source: Any, num_workers: int = 0) -> list[Any]:
    """Return all elements in a shuffled order."""

    def shorten_backoff(index: int, count: int) -> None:  # runs in each worker
        import gristmill._io.stores.retry as retry  # noqa: PLC0415

        retry.INITIAL_BACKOFF_S = 0.001

    loader = DataLoader(
        data_source=source,
        sampler=IndexSampler(len(source), shuffle=True, seed=7, num_epochs=1),
        worker_count=num_workers,
        worker_options=WorkerOptions(worker_init_fn=shorten_backoff),
    )
    return list(loader)


def files_in(folder: Path) -> dict[str, bytes]:
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def assert_same(got: list[Any], expected: list[Any]) -> None:
    """Assert that elements and their types are equal."""
    assert len(got) == len(expected) > 0
    for mine, other in zip(got, expected, strict=True):
        assert type(mine) is type(other)
        if isinstance(other, dict):
            assert list(mine) == list(other)
            assert_same(list(mine.values()), list(other.values()))
        elif isinstance(other, np.ndarray | np.generic):
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other)
        else:
            assert mine == other


@pytest.mark.parametrize("store", ["http", "s3", "memory"])
def test_the_stream_over_a_store_is_the_local_one(
    request: pytest.FixtureRequest, tmp_path: Path, case: Case, store: str
):
    if case.needs_listing and store == "http":
        pytest.skip("HTTP does not support listing folders")
    files = files_in(tmp_path)
    expected = stream(case.open(lambda name: str(tmp_path / name)))
    if store == "memory":
        root = request.getfixturevalue("put_in_memory")(files)
        got = stream(case.open(lambda name: root + name))
    else:
        server = request.getfixturevalue(f"serve_{store}")(files)
        source = case.open(server.url, server.storage())
        server.server.faults = FAULTS
        got = stream(source)
        assert server.gets(), "nothing was read from the store"
    assert_same(got, expected)


@pytest.mark.parametrize("store", ["http", "s3"])
def test_workers_read_the_same_from_a_store(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
):
    """All sources in one stream, because workers take a while to start."""
    if store == "http":
        names = [name for name, case in CASES.items() if not case.needs_listing]
    else:  # one for each access pattern: ranges, streams, local copies, many small files
        names = ["TFRecord", "Parquet", "SQLite", "images"]
    cases = {name.replace(" ", "-"): CASES[name] for name in names}
    for name, case in cases.items():
        (tmp_path / name).mkdir()
        case.write(tmp_path / name)

    def together(address: Address, storage: StorageOptions | None = None) -> Any:
        return MapDataset.concatenate(
            [
                MapDataset.source(case.open(lambda path: address(f"{name}/{path}"), storage))  # noqa: B023
                for name, case in cases.items()
            ]
        )

    server = request.getfixturevalue(f"serve_{store}")(files_in(tmp_path))
    there = together(server.url, server.storage())
    server.server.faults = FAULTS
    here = together(lambda name: str(tmp_path / name))
    assert_same(stream(there, num_workers=2), stream(here))


NAMED_BY_FILES = [
    name for name, case in CASES.items() if name != "ArrayRecord" and not case.needs_listing
]
"""Without ArrayRecord, whose repr is Grain's hash of the paths."""


@pytest.mark.parametrize("name", NAMED_BY_FILES)
def test_the_repr_of_a_source_does_not_depend_on_the_store(
    serve_http: Any, tmp_path: Path, name: str
):
    """The repr is part of checkpoints, which can be restored with the files elsewhere."""
    case = CASES[name]
    (tmp_path / "data").mkdir()
    case.write(tmp_path / "data")
    server = serve_http(files_in(tmp_path))
    there = case.open(lambda name: server.url(f"data/{name}"), server.storage())
    assert repr(there) == repr(case.open(lambda name: str(tmp_path / "data" / name)))


def test_secrets_in_an_address_are_not_in_the_repr_of_a_source(serve_http: Any, tmp_path: Path):
    write_tfrecord(tmp_path)
    server = serve_http(files_in(tmp_path))
    source = TFRecordSource(server.url("0.tfrecord?signature=secret"), storage=server.storage())
    assert repr(source) == "TFRecordSource('0.tfrecord')"
