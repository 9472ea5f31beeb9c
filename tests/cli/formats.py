"""Sample data in every format that has a source, written without gristmill."""

import csv
import gzip
import io
import json
import sqlite3
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import google_crc32c
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import zarr
from array_record.python.array_record_module import ArrayRecordWriter
from PIL import Image

from gristmill._data.example_proto.serialize import format_example

COUNT = 30


def png(number: int) -> bytes:
    pixels = np.full((12, 16, 3), number * 8 % 256, np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def examples() -> list[bytes]:
    return [
        format_example({"number": i, "text": f"text {i}", "items": np.arange(i % 3 + 1)})
        for i in range(COUNT)
    ]


def array_record(folder: Path) -> str:
    writer = ArrayRecordWriter(str(folder / "a.array_record"), "group_size:1")
    for record in examples():
        writer.write(record)
    writer.close()
    return str(folder / "a.array_record")


def tfrecord(folder: Path) -> str:
    def masked(data: bytes) -> bytes:
        crc = google_crc32c.value(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    with open(folder / "a.tfrecord", "wb") as file:
        for record in examples():
            length = struct.pack("<Q", len(record))
            file.write(length + masked(length) + record + masked(record))
    return str(folder / "a.tfrecord")


def table() -> Any:
    return pa.table(
        {
            "id": pa.array(range(COUNT), pa.int32()),
            "text": [f"text {i}" for i in range(COUNT)],
            "value": np.arange(COUNT) / 3,
        }
    )


def parquet(folder: Path) -> str:
    pq.write_table(table(), folder / "a.parquet", row_group_size=7)
    return str(folder / "a.parquet")


def arrow(folder: Path) -> str:
    feather.write_feather(table(), str(folder / "a.feather"))
    return str(folder / "a.feather")


def hugging_face(folder: Path) -> str:
    datasets.Dataset(table()).save_to_disk(str(folder / "saved"))
    return str(folder / "saved")


def comma_separated(folder: Path) -> str:
    with open(folder / "a.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        writer.writerows([i, f"text,\n{i}"] for i in range(COUNT))
    return str(folder / "a.csv")


def json_lines(folder: Path) -> str:
    lines = [json.dumps({"id": i, "words": ["a"] * (i % 3)}) for i in range(COUNT)]
    (folder / "a.jsonl").write_text("\n".join(lines))
    return str(folder / "a.jsonl")


def json_array(folder: Path) -> str:
    (folder / "a.json").write_text(json.dumps([{"id": i, "text": f"[{i}"} for i in range(COUNT)]))
    return str(folder / "a.json")


def text(folder: Path) -> str:
    lines = "".join(f"line {i}\n" for i in range(COUNT))
    (folder / "a.txt.gz").write_bytes(gzip.compress(lines.encode()))
    return str(folder / "a.txt.gz")


def litdata(folder: Path) -> str:
    items = [struct.pack("<2Iq", 8, 2, i) + b"%02d" % i for i in range(COUNT)]
    ends = np.cumsum([4 * (COUNT + 2), *map(len, items)]).astype("<u4")
    (folder / "litdata").mkdir()
    data = struct.pack("<I", COUNT) + ends.tobytes() + b"".join(items)
    (folder / "litdata" / "chunk-0-0.bin").write_bytes(data)
    leaf = {"type": None, "context": None, "children_spec": []}
    tree = {"type": "builtins.dict", "context": '["id", "text"]', "children_spec": [leaf, leaf]}
    config = {"data_format": ["int", "str"], "data_spec": json.dumps([1, tree])}
    chunk = {"chunk_size": COUNT, "filename": "chunk-0-0.bin"}
    (folder / "litdata" / "index.json").write_text(
        json.dumps({"chunks": [chunk], "config": config})
    )
    return str(folder / "litdata")


def mds(folder: Path) -> str:
    records = [struct.pack("<Iq", 2, i) + b"%02d" % i for i in range(COUNT)]
    ends = np.cumsum([4 * (COUNT + 2), *map(len, records)]).astype("<u4")
    (folder / "mds").mkdir()
    data = struct.pack("<I", COUNT) + ends.tobytes() + b"".join(records)
    (folder / "mds" / "shard.00000.mds").write_bytes(data)
    shard = {
        "column_encodings": ["int", "str"],
        "column_names": ["id", "text"],
        "column_sizes": [8, None],
        "format": "mds",
        "raw_data": {"basename": "shard.00000.mds"},
        "samples": COUNT,
        "version": 2,
    }
    (folder / "mds" / "index.json").write_text(json.dumps({"shards": [shard], "version": 2}))
    return str(folder / "mds")


def megatron(folder: Path) -> str:
    tokens = [np.arange(i % 5, dtype="<u2") for i in range(COUNT)]
    lengths = np.array([len(sequence) for sequence in tokens], "<i4")
    starts = (np.cumsum(lengths) - lengths) * 2
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, COUNT, COUNT + 1)
    bounds = np.arange(COUNT + 1, dtype="<i8")
    (folder / "a.bin").write_bytes(np.concatenate(tokens).tobytes())
    index = head + lengths.tobytes() + starts.astype("<i8").tobytes() + bounds.tobytes()
    (folder / "a.idx").write_bytes(index)
    return str(folder / "a.idx")


def tar(folder: Path) -> str:
    with tarfile.open(folder / "a.tar", "w") as archive:
        for i in range(COUNT):
            for name, data in ((f"{i:03d}.png", png(i)), (f"{i:03d}.cls", b"%d" % i)):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return str(folder / "a.tar")


def image_folder(folder: Path) -> str:
    for i in range(COUNT):
        class_folder = folder / "images" / ("cat", "dog")[i % 2]
        class_folder.mkdir(parents=True, exist_ok=True)
        (class_folder / f"{i:03d}.png").write_bytes(png(i))
    return str(folder / "images")


def npz(folder: Path) -> str:
    images = np.arange(COUNT * 8 * 9, dtype=np.uint8).reshape(COUNT, 8, 9)
    np.savez(folder / "a.npz", image=images, label=np.arange(COUNT))
    return str(folder / "a.npz")


def hdf5(folder: Path) -> str:
    with h5py.File(folder / "a.h5", "w") as file:
        file["image"] = np.arange(COUNT * 8 * 9, dtype=np.uint8).reshape(COUNT, 8, 9)
        file["label"] = np.arange(COUNT)
    return str(folder / "a.h5")


def zarr_group(folder: Path) -> str:
    group = zarr.open_group(folder / "a.zarr", mode="w")
    group.create_array("label", data=np.arange(COUNT), chunks=(7,))
    return str(folder / "a.zarr")


def idx(folder: Path) -> str:
    images = np.arange(COUNT * 8 * 9, dtype=np.uint8).reshape(COUNT, 8, 9)
    header = struct.pack(">HBB3I", 0, 8, 3, *images.shape)
    (folder / "a-ubyte").write_bytes(header + images.tobytes())
    return str(folder / "a-ubyte")


def sqlite(folder: Path) -> str:
    connection = sqlite3.connect(folder / "a.db")
    connection.execute("CREATE TABLE rows (id INTEGER, text TEXT)")
    rows = [(i, f"text {i}") for i in range(COUNT)]
    connection.executemany("INSERT INTO rows VALUES (?, ?)", rows)
    connection.commit()
    connection.close()
    return str(folder / "a.db")


MAKERS: dict[str, Callable[[Path], str]] = {
    "array_record": array_record,
    "arrow": arrow,
    "csv": comma_separated,
    "hdf5": hdf5,
    "hugging_face": hugging_face,
    "idx": idx,
    "image_folder": image_folder,
    "json_array": json_array,
    "json_lines": json_lines,
    "litdata": litdata,
    "mds": mds,
    "megatron": megatron,
    "numpy": npz,
    "parquet": parquet,
    "sqlite": sqlite,
    "tar": tar,
    "text": text,
    "tfrecord": tfrecord,
    "zarr": zarr_group,
}
