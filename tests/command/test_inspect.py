"""`gristmill inspect`: what is in a file, at a glance."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill.command import main
from gristmill.command._inspect import inspect
from gristmill.command._sizes import as_bytes
from gristmill.sources import FORMATS, detect_format
from tests.command.formats import COUNT, MAKERS


class Terminal(io.StringIO):
    """A terminal that shows colours."""

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "utf-8"

    def isatty(self) -> bool:
        return True


def look(path: str, *, output: io.StringIO | None = None, **options: Any) -> str:
    output = output or io.StringIO()
    inspect(path, **{"count": 2, **options}, output=output)
    return output.getvalue()


@pytest.mark.parametrize("name", MAKERS)
def test_it_tells_the_format_and_the_records(tmp_path: Path, name: str):
    told = look(MAKERS[name](tmp_path))

    lines = told.splitlines()
    assert lines[0].split() == ["format", name]
    assert f"records   {COUNT}" in told or f"records  {COUNT}" in told
    assert "[0]" in lines
    assert "[1]" in lines
    assert "[2]" not in lines
    assert max(map(len, lines)) < 200


def test_every_format_is_tried():
    assert set(MAKERS) | {"tsv"} == set(FORMATS)


def test_it_shows_columns_and_values(tmp_path: Path):
    told = look(MAKERS["parquet"](tmp_path))

    assert "id: int32, text: str, value: float64" in told
    assert "  text: 'text 1'\n" in told
    assert "  id: 1 (int32)\n" in told


def test_it_shows_the_features_of_examples(tmp_path: Path):
    told = look(MAKERS["tfrecord"](tmp_path))

    assert "number: int64, text: bytes, items: int64[?]" in told.replace("features  ", "")
    assert "items: int64[2] [0, 1]" in told


def test_it_shows_images_as_words_where_there_are_no_colours(tmp_path: Path):
    told = look(MAKERS["tar"](tmp_path))

    assert "PNG image of 16 x 12" in told
    assert "\x1b" not in told


@pytest.mark.parametrize("name", ["tar", "image_folder", "numpy"])
def test_it_shows_pictures_on_a_terminal(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    told = look(MAKERS[name](tmp_path), output=Terminal())

    assert "▀" in told
    assert "\x1b[38;2;" in told


def test_an_empty_file_is_told(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.zeros((0, 3)))

    assert "records  0" in look(str(tmp_path / "a.npy"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "none.parquet"], "There is no such file"),
        (["inspect", "notes.txt"], "The format is none that is known"),
        (["inspect", "a.npz", "--columns", "image"], "`columns` does not go with numpy"),
        (["inspect", "a.npz", "--format", "parquet"], "not a Parquet file"),
        (["inspect", "a.npz", "-n", "-1"], "`--records` must be at least 0"),
        (["inspect", "empty"], "holds no data"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    tmp_path: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    MAKERS["numpy"](tmp_path)
    (tmp_path / "notes.txt").write_text("some notes")
    (tmp_path / "empty").mkdir()

    assert main(arguments) == 1

    told = capsys.readouterr()
    assert told.err.startswith("gristmill: ")
    assert message in told.err
    assert told.err.count("\n") == 1
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    "arguments", [[], ["inspect"], ["convert", "a"], ["convert", "a", "b", "--shard-size", "big"]]
)
def test_a_wrong_command_line_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ending:
        main(arguments)

    assert ending.value.code == 2
    assert "usage: gristmill" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["--help"], ["inspect", "--help"], ["convert", "--help"]])
def test_help_helps(command: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ending:
        main(command)

    assert ending.value.code == 0
    told = capsys.readouterr().out
    assert "usage: gristmill" in told
    assert "%" not in told


def test_it_runs_as_a_program_and_ends_quietly_when_nobody_reads(tmp_path: Path):
    path = MAKERS["numpy"](tmp_path)
    command = f"{sys.executable} -m gristmill inspect {path} -n 30 | head -n 1"

    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)

    assert (done.stdout.split(), done.stderr) == (["format", "numpy"], "")


def test_folders_of_files_are_told(tmp_path: Path):
    MAKERS["parquet"](tmp_path)

    assert detect_format(tmp_path) == "parquet"


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5.2", "MB", "5 bananas"])
def test_sizes_that_are_none(text: str):
    with pytest.raises(Exception, match="a size looks like"):
        as_bytes(text)
