"""The command line: help, usage, and errors that name the flags."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill._cli.main import main
from tests.cli.formats import MAKERS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "none.parquet"], "There is no such file"),
        (["inspect", "notes.dat"], "`--format`"),
        (["inspect", "a.npz", "--columns", "image"], "`--columns`"),
        (["inspect", "a.npz", "--format", "parquet"], "not a Parquet file"),
        (["inspect", "a.npz", "-n", "-1"], "`--records` must be at least 0"),
        (["inspect", "empty"], "empty"),
        (["inspect", "a.db", "--query", "DELETE FROM rows"], "`--query`"),
        (["inspect", "a.db", "--table", "none"], "`--table`"),
        (["convert", "none.csv", "out"], "There is no such file"),
        (["convert", "a.npz", "out", "--records-per-shard", "0"], "`--records-per-shard` must be"),
        (["inspect", "a.npz", "--no-has-header"], "`--has-header` cannot be used with numpy"),
        (["inspect", "empty.csv"], "pass `--no-has-header`"),
        (["convert", "late.csv", "out.parquet"], "such as `--types x=float64`"),
        (["inspect", "late.csv", "--delimiter", "ab"], "`--delimiter` must be one character"),
        (["convert", "late.csv", "out", "--to", "npy", "--types", "x=string"], "(`--to parquet`"),
    ],
)
def test_an_error_is_one_line_that_names_the_flag(
    tmp_path: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    MAKERS["numpy"](tmp_path)
    MAKERS["sqlite"](tmp_path)
    (tmp_path / "notes.dat").write_text("some notes")
    (tmp_path / "empty.csv").write_text("\n")
    late = "".join(f"{number:070}\n" for number in range(20_000))
    (tmp_path / "late.csv").write_text(f"x\n{late}0.1\n")  # after what types are inferred from
    (tmp_path / "empty").mkdir()

    assert main(arguments) == 1

    stderr = capsys.readouterr().err
    assert stderr.startswith("gristmill: ")
    assert message in stderr
    assert stderr.count("\n") == 1
    assert "Traceback" not in stderr


def test_notes_name_flags_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a.csv").write_text("x\n0.1\n")
    assert main(["convert", f"{tmp_path}/a.csv", f"{tmp_path}/out"]) == 1
    message, note = capsys.readouterr().err.splitlines()
    assert "Round it with `--float32`, or" in message
    assert note == "  In record 0. Parquet (`--to parquet`) supports more types."


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert "usage: gristmill" in printed
    assert "convert" in printed


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect"],
        ["convert", "a"],
        ["convert", "a", "b", "--shard-size", "big"],
        ["inspect", "a", "--types", "x"],
    ],
)
def test_a_wrong_command_line_prints_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ending:
        main(arguments)

    assert ending.value.code == 2
    assert "usage: gristmill" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["--help"], ["inspect", "--help"], ["convert", "--help"]])
def test_help_prints_the_usage(command: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ending:
        main(command)

    assert ending.value.code == 0
    printed = capsys.readouterr().out
    assert "usage: gristmill" in printed
    assert "%" not in printed


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ending:
        main(["--version"])

    assert ending.value.code == 0
    assert capsys.readouterr().out == f"gristmill {importlib.metadata.version('gristmill')}\n"


@pytest.mark.parametrize("command", ["inspect", "convert", "demo"])
def test_the_help_of_a_command_describes_it(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main([command, "--help"])

    _, description, *_ = capsys.readouterr().out.split("\n\n")
    assert description.rstrip().endswith(".")


def test_the_program_ends_quietly_when_its_output_is_closed(tmp_path: Path):
    path = MAKERS["numpy"](tmp_path)
    command = f"{sys.executable} -m gristmill inspect {path} -n 30 | head -n 1"

    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)

    assert (done.stdout.split(), done.stderr) == (["format", "numpy"], "")
