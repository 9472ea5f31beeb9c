"""`gristmill inspect`: the format, the columns and the first records of a file."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill._cli.inspect import inspect
from gristmill._data.sources.detect import FORMATS, detect_format
from tests.cli.formats import COUNT, MAKERS


class Terminal(io.StringIO):
    """A terminal with colors."""

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "utf-8"

    def isatty(self) -> bool:
        return True


def inspected(path: str, *, output: io.StringIO | None = None, **options: Any) -> str:
    output = output or io.StringIO()
    arguments: dict[str, Any] = {"count": 2, **options}
    inspect(path, **arguments, output=output)
    return output.getvalue()


@pytest.mark.parametrize("name", MAKERS)
def test_the_format_and_the_first_records_are_printed(tmp_path: Path, name: str):
    printed = inspected(MAKERS[name](tmp_path))

    lines = printed.splitlines()
    assert lines[0].split() == ["format", name]
    assert f"records   {COUNT}" in printed or f"records  {COUNT}" in printed
    assert "[0]" in lines
    assert "[1]" in lines
    assert "[2]" not in lines
    assert max(map(len, lines)) < 200


def test_every_format_is_tested():
    assert set(MAKERS) | {"tsv"} == set(FORMATS)


def test_columns_and_values_are_printed(tmp_path: Path):
    printed = inspected(MAKERS["parquet"](tmp_path))

    assert "id: int32, text: str, value: float64" in printed
    assert "  text: 'text 1'\n" in printed
    assert "  id: 1 (int32)\n" in printed


def test_the_features_of_examples_are_printed(tmp_path: Path):
    printed = inspected(MAKERS["tfrecord"](tmp_path))

    assert "number: int64, text: bytes, items: int64[?]" in printed.replace("features  ", "")
    assert "items: int64[2] [0, 1]" in printed


def test_images_are_described_without_a_color_terminal(tmp_path: Path):
    printed = inspected(MAKERS["tar"](tmp_path))

    assert "PNG image of 16 x 12" in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize("name", ["tar", "image_folder", "numpy"])
def test_images_are_shown_on_a_color_terminal(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    printed = inspected(MAKERS[name](tmp_path), output=Terminal())

    assert "▀" in printed
    assert "\x1b[38;2;" in printed


def test_an_empty_file_has_zero_records(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.zeros((0, 3)))

    assert "records  0" in inspected(str(tmp_path / "a.npy"))


def test_the_format_of_a_folder_is_detected(tmp_path: Path):
    MAKERS["parquet"](tmp_path)

    assert detect_format(tmp_path) == "parquet"
