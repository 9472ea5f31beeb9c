"""Sample data in every format that has a source, written without gristmill."""

import csv
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
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
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
    "hugging_face": hugging_face,
    "idx": idx,
    "image_folder": image_folder,
    "json_lines": json_lines,
    "numpy": npz,
    "parquet": parquet,
    "sqlite": sqlite,
    "tar": tar,
    "tfrecord": tfrecord,
}
