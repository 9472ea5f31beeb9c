"""`gristmill inspect` prints names and keys of hostile files without control characters."""

import io
import json
import os
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

from gristmill._cli.inspect import inspect
from gristmill._cli.main import main
from gristmill._data.example_proto.serialize import format_example
from gristmill._printable import printable

EVIL = "a\x1b[2J\x1b]0;title\x07\u202e\x9b31m"


def parquet(folder: Path) -> Path:
    pq.write_table(pa.table({EVIL: [1, 2]}), folder / "a.parquet")
    return folder / "a.parquet"


def arrow(folder: Path) -> Path:
    table = pa.table({EVIL: [{EVIL: 1}]})
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    return folder / "a.arrow"


def json_lines(folder: Path) -> Path:
    (folder / "a.jsonl").write_text(json.dumps({EVIL: {EVIL: [EVIL]}}))
    return folder / "a.jsonl"


def comma_separated(folder: Path) -> Path:
    (folder / "a.csv").write_text(f"{EVIL},b\n1,{EVIL}\n")
    return folder / "a.csv"


def tar(folder: Path) -> Path:
    with tarfile.open(folder / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(f"{EVIL}.{EVIL}"))
    return folder / "a.tar"


def npz(folder: Path) -> Path:
    data = io.BytesIO()
    np.save(data, np.arange(3))
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr(f"{EVIL}.npy", data.getvalue())
    return folder / "a.npz"


def sqlite(folder: Path) -> Path:
    connection = sqlite3.connect(folder / "a.sqlite")
    connection.execute(f'CREATE TABLE t ("{EVIL}")')
    connection.execute("INSERT INTO t VALUES (1)")
    connection.commit()
    connection.close()
    return folder / "a.sqlite"


def array_record(folder: Path) -> Path:
    writer = ArrayRecordWriter(str(folder / "a.array_record"), "group_size:1")
    writer.write(format_example({EVIL: 1}))
    writer.close()
    return folder / "a.array_record"


def file_name(folder: Path) -> Path:
    np.save(folder / "x.npy", np.arange(3))
    os.rename(folder / "x.npy", folder / f"{EVIL}.npy")
    return folder / f"{EVIL}.npy"


def undecodable_name(folder: Path) -> Path:
    np.save(folder / "x.npy", np.arange(3))
    path = Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.npy"))
    os.rename(folder / "x.npy", path)
    return path


MAKERS = [
    parquet,
    arrow,
    json_lines,
    comma_separated,
    tar,
    npz,
    sqlite,
    array_record,
    file_name,
    undecodable_name,
]


@pytest.mark.parametrize("make", MAKERS)
def test_no_control_character_reaches_the_terminal(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    output = io.StringIO()
    inspect(str(make(tmp_path)), count=3, output=output)
    assert all(line.isprintable() for line in output.getvalue().split("\n"))
    output.getvalue().encode()  # also without surrogates


def test_no_control_character_of_an_error_reaches_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{EVIL}.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00")
    assert main(["inspect", str(path)]) == 1
    assert capsys.readouterr().err.removesuffix("\n").isprintable()


def test_visible_characters_are_printed_as_they_are() -> None:
    assert printable("größe 寿司 'x'") == "größe 寿司 'x'"


def test_a_broken_image_is_described_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.tar").unlink(missing_ok=True)
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("a.png")
        data = b"\x89PNG\r\n\x1a\n" + bytes(30)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    output = io.StringIO()
    inspect(str(tmp_path / "a.tar"), count=1, output=output)
    assert "png: 38 B" in output.getvalue()
