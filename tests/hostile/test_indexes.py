"""A saved index is believed only if it describes the file, and its author could change the file."""

import io
import json
import os
import random
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill._data.sources.records.crc32c import masked_crcs
from gristmill.options import StorageOptions
from gristmill.sources import (
    CsvSource,
    JsonArraySource,
    JsonLinesSource,
    TarSource,
    TextSource,
    TFRecordSource,
)

LINES = [{"x": number} for number in range(50)]
DATA = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").write_bytes(DATA)
    source = JsonLinesSource(tmp_path / "a.jsonl", storage=StorageOptions(index_beside_data=True))
    assert source.__getitems__(range(len(source))) == LINES
    return tmp_path / "a.jsonl"


def read(path: Path) -> list[Any]:
    source = JsonLinesSource(path)
    return [source[index] for index in range(len(source))]


def index_of(path: Path) -> Path:
    (found,) = path.parent.glob("*.gristmill-index")
    return found


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the arrays of an index, and make its checksum right."""
    index = index_of(path)
    magic, header, rest = index.read_bytes().split(b"\n", 2)
    with np.load(io.BytesIO(rest[4:])) as saved:
        arrays = {name: saved[name] for name in saved.files}
    change(arrays)
    body = io.BytesIO()
    np.savez(body, **arrays)
    replace_body(index, magic, header, body.getvalue())


def replace_body(index: Path, magic: bytes, header: bytes, body: bytes) -> None:
    checksum = zlib.crc32(body).to_bytes(4, "little")
    index.write_bytes(magic + b"\n" + header + b"\n" + checksum + body)


def test_another_file_with_the_same_size_and_date_is_indexed_again(path: Path):
    before = path.stat()
    lines = [json.dumps({"y": number}) for number in range(40)]
    other = "\n".join(lines).encode()[: len(DATA)].ljust(len(DATA), b"\n")
    path.with_name("new").write_bytes(other)
    os.utime(path.with_name("new"), ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(path.with_name("new"), path)
    assert read(path) == [json.loads(line) for line in lines]


def test_a_file_changed_in_place_with_the_date_set_back_is_indexed_again(path: Path):
    before = path.stat()
    path.write_bytes(DATA[9:] + DATA[:9])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read(path) == LINES[1:] + LINES[:1]


CRAFTED: dict[str, Callable[[dict[str, Any]], None]] = {
    "beyond the end": lambda arrays: arrays.update({"array stops": arrays["array stops"] + 10**6}),
    "negative": lambda arrays: arrays.update({"array starts": arrays["array starts"] - 5}),
    "reversed": lambda arrays: arrays.update(
        {"array starts": arrays["array stops"], "array stops": arrays["array starts"]}
    ),
    "shorter": lambda arrays: arrays.update({"array stops": arrays["array stops"][:-1]}),
    "of floats": lambda arrays: arrays.update({"array starts": arrays["array starts"] * 1.0}),
    "in two dimensions": lambda arrays: arrays.update(
        {"array starts": arrays["array starts"][None]}
    ),
    "missing": lambda arrays: arrays.pop("array stops"),
}


@pytest.mark.parametrize("change", CRAFTED.values(), ids=CRAFTED.keys())
def test_a_crafted_index_that_does_not_fit_the_file_is_rebuilt(
    path: Path, change: Callable[[dict[str, Any]], None]
):
    rewrite(path, change)
    assert read(path) == LINES


def write_tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for number in range(9):
            for extension in ("txt", "cls"):
                member = tarfile.TarInfo(f"{number}.{extension}")
                member.size = number + 1
                archive.addfile(member, io.BytesIO(b"%d" % number * member.size))


def write_tfrecord(path: Path) -> None:
    records = [b"x" * number for number in range(9)]
    lengths = [len(record).to_bytes(8, "little") for record in records]
    heads, tails = masked_crcs(lengths).tolist(), masked_crcs(records).tolist()
    rows = zip(lengths, heads, records, tails, strict=True)
    path.write_bytes(
        b"".join(
            length + head.to_bytes(4, "little") + record + tail.to_bytes(4, "little")
            for length, head, record, tail in rows
        )
    )


FORMATS: dict[str, tuple[Callable[..., Any], Callable[[Path], object]]] = {
    "lines": (JsonLinesSource, lambda path: path.write_bytes(DATA)),
    "text": (TextSource, lambda path: path.write_text("one\ntwo\n\nthree\n")),
    "csv": (CsvSource, lambda path: path.write_text("a,b\n1,2\n3,4\n5,6\n")),
    "json": (JsonArraySource, lambda path: path.write_text(json.dumps(LINES))),
    "tar": (TarSource, write_tar),
    "tfrecord": (TFRecordSource, write_tfrecord),
}

EDITS: dict[str, Callable[[Any], Any]] = {
    "removed": lambda array: None,
    "shortened": lambda array: array[:-1],
    "emptied": lambda array: array[:0],
    "doubled": lambda array: np.concatenate([array, array]),
    "shifted": lambda array: array[:-1] if array.dtype == np.uint8 else array[::-1] + 1,
    "of floats": lambda array: array * float("nan"),
    "of strings": lambda array: np.array(["x"] * len(array)),
    "in two dimensions": lambda array: array[None],
    "in no dimension": lambda array: np.zeros((), array.dtype),
    "huge": lambda array: array + np.array(2**62).astype(array.dtype),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
@pytest.mark.parametrize("name", FORMATS)
def test_an_index_with_an_edited_array_is_rebuilt(tmp_path: Path, name: str, edit: Any):
    kind, write = FORMATS[name]
    path = tmp_path / "data"
    write(path)
    storage = StorageOptions(index_beside_data=True)
    source = kind(path, storage=storage)
    expected = [source[index] for index in range(len(source))]
    index = index_of(path)
    intact = index.read_bytes()
    with np.load(io.BytesIO(intact.split(b"\n", 2)[2][4:])) as saved:
        names = list(saved.files)
    for array in names:
        index.write_bytes(intact)
        rewrite(path, lambda arrays, array=array: replace_array(arrays, array, edit))
        for _ in range(2):
            found = kind(path)
            assert [found[index] for index in range(len(found))] == expected, array


def replace_array(arrays: dict[str, Any], name: str, edit: Callable[[Any], Any]) -> None:
    edited = edit(arrays.pop(name))
    if edited is not None:
        arrays[name] = edited


def test_a_crafted_index_that_is_not_of_arrays_is_rebuilt(path: Path):
    index = index_of(path)
    magic, header, _ = index.read_bytes().split(b"\n", 2)
    bomb, huge = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("array starts.npy", bytes(10**7))
    header_only = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header_only, {"descr": "<i8", "fortran_order": False, "shape": (2**50,)}
    )
    with zipfile.ZipFile(huge, "w") as file:
        file.writestr("array starts.npy", header_only.getvalue())
    for body in (b"", b"x" * 100, bomb.getvalue(), huge.getvalue()):
        replace_body(index, magic, header, body)
        assert read(path) == LINES


def test_an_index_that_is_a_pipe_does_not_block(path: Path):
    index = index_of(path)
    index.unlink()
    os.mkfifo(index)
    assert read(path) == LINES


def test_an_index_that_others_can_write_is_not_used(path: Path):
    rewrite(path, lambda arrays: arrays.update({name: value[:9] for name, value in arrays.items()}))
    assert len(JsonLinesSource(path)) == 9  # within bounds, and by a trusted author
    index_of(path).chmod(0o666)
    assert read(path) == LINES


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change the owner of files")
def test_an_index_of_another_user_is_not_used(path: Path):
    rewrite(path, lambda arrays: arrays.update({name: value[:9] for name, value in arrays.items()}))
    os.chown(index_of(path), 54321, 54321)
    assert read(path) == LINES


def test_mutated_indexes_never_change_the_records(path: Path):
    rng = random.Random(0)
    intact = index_of(path).read_bytes()
    for _ in range(200):
        data = bytearray(intact)
        for _ in range(rng.choice([1, 1, 9])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        index_of(path).write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        assert read(path) == LINES
