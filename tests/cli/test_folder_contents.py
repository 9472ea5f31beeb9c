"""`gristmill inspect` of a folder lists what is there."""

import json
from pathlib import Path

import pytest

from gristmill._cli.main import main


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_files_of_one_kind_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for number in range(3):
        record = json.dumps({"x": number}).encode()
        write(tmp_path / "data" / "train" / f"{number}.jsonl", record)
    write(tmp_path / "data" / "test" / "0.jsonl", b'{"x": 7}')
    write(tmp_path / "data" / "README.md", bytes(2000))

    assert main(["inspect", str(tmp_path / "data")]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["format", "json_lines"]
    first = lines.index("folder") + 1
    assert lines[first : first + 4] == [
        "  README.md      2.0 kB",
        "  test/0.jsonl   8 B",
        "  train/*.jsonl  3 files, 24 B",
        "",
    ]


def test_a_folder_of_other_files_is_listed_before_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for number in range(25):
        write(tmp_path / f"a.x{number}", b"?")

    assert main(["inspect", str(tmp_path)]) == 1

    captured = capsys.readouterr()
    assert captured.out.splitlines()[0] == "a.x0   1 B"
    assert captured.out.splitlines()[20:] == ["... and 5 other kinds of files"]
    assert "The format is not known" in captured.err


def test_a_file_is_not_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write(tmp_path / "a.jsonl", b"1")
    assert main(["inspect", str(tmp_path / "a.jsonl")]) == 0
    assert capsys.readouterr().out.startswith("format")
