"""`gristmill inspect`: the format, the columns and the first records of a file."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill._cli.inspect import inspect
from gristmill._cli.main import main
from gristmill._data.sources.detect import FORMATS, detect_format
from gristmill.errors import PlanError
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
    assert lines[0].split()[:2] == ["format", name]
    assert f"records   {COUNT}" in printed or f"records  {COUNT}" in printed
    assert "[0]" in lines
    assert "[1]" in lines
    assert "[2]" not in lines
    assert max(map(len, lines)) < 200


def test_every_format_is_tested():
    assert set(MAKERS) | {"tsv"} == set(FORMATS)


def test_columns_and_values_are_printed(tmp_path: Path):
    printed = inspected(MAKERS["parquet"](tmp_path))

    columns = printed.partition("columns (all records)\n")[2].splitlines()[:3]
    assert [line.split()[:2] for line in columns] == [
        ["id", "int32"],
        ["text", "str"],
        ["value", "float64"],
    ]
    assert "  text: 'text 1'\n" in printed
    assert "  id: 1 (int32)\n" in printed


def test_the_features_of_examples_are_printed(tmp_path: Path):
    printed = inspected(MAKERS["tfrecord"](tmp_path))

    assert "tfrecord of tf.train.Example" in printed
    columns = printed.partition("columns (all records)\n")[2].splitlines()[:3]
    assert [line.split()[:2] for line in columns] == [
        ["number", "int64"],
        ["text", "bytes"],
        ["items", "int64[?]"],
    ]
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


def test_nulls_and_empty_lists_are_printed(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"a": null, "b": [], "c": {"d": null, "e": [1, null]}}\n')

    printed = inspected(str(tmp_path / "a.jsonl"))

    for line in ("a: None", "b: []", 'c["d"]: None', 'c["e"][0]: 1', 'c["e"][1]: None'):
        assert f"  {line}\n" in printed


def column_line(printed: str, name: str) -> str:
    (line,) = [line for line in printed.splitlines() if line.startswith(f"  {name} ")]
    return " ".join(line.split())


def write_rows(folder: Path, rows: list[Any]) -> str:
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "a.jsonl")


def test_what_is_in_each_column_is_shown(tmp_path: Path):
    rows = [
        {
            "number": n,
            "text": "x" * (n + 1),
            "gap": None if n % 2 else float("nan") if n % 4 else 0.5,
            "kind": "ab"[n % 4 == 0],
            "tokens": [7] * (n % 3 + 1),
            "nested": {"tags": ["t"] * (n % 2), "box": [[1, 2], [3]]},
        }
        for n in range(8)
    ]

    printed = inspected(write_rows(tmp_path, [*rows, {"number": 8}]))

    assert "columns (all records)" in printed
    assert column_line(printed, "number").endswith("0 to 8, mean 4, std 2.582")
    assert column_line(printed, "text").endswith("1 to 8 characters, mean 4.5")
    assert "7 (78%) missing" in column_line(printed, "gap")
    assert column_line(printed, "gap").endswith("always 0.5; 2 NaN")
    assert column_line(printed, "kind").endswith("2 different: a 75%, b 25%")
    assert column_line(printed, "tokens").endswith("always 7; 1 to 3 items, mean 1.875")
    assert "int64[?]" in column_line(printed, "tokens")
    assert column_line(printed, 'nested["tags"]').endswith("0 to 1 items, mean 0.5")
    assert column_line(printed, 'nested["box"][*]').endswith(
        "1 to 3, mean 2, std 0.8165; 1 to 2 items, mean 1.5"
    )


def test_images_and_the_names_of_classes_are_shown(tmp_path: Path):
    printed = inspected(MAKERS["image_folder"](tmp_path))

    assert "PNG images, 16 x 12" in column_line(printed, "image")
    assert "different: cat 50%, dog 50%" in column_line(printed, "label")


def test_labels_of_records_have_the_names_of_their_classes(tmp_path: Path):
    printed = inspected(MAKERS["image_folder"](tmp_path))
    inspected(str(tmp_path / "images"), page_path=str(tmp_path / "page.html"))

    assert "  label: 0 ('cat')\n" in printed
    assert "0 (&#x27;cat&#x27;)" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_values_that_are_dicts_in_other_rows_and_numbers_in_arrays_are_counted(tmp_path: Path):
    rows = [
        {"m": {"z": 1} if n % 2 else None, "v": [0.5, float("nan") if n == 3 else 1.0]}
        for n in range(50)
    ]

    printed = inspected(write_rows(tmp_path, rows))

    assert "nested or null 25 (50%) missing" in column_line(printed, "m")
    assert "25 (50%) missing" in column_line(printed, 'm["z"]')
    assert "1 of 100 numbers (1%) missing" in column_line(printed, "v")


@pytest.mark.parametrize("name", ["classes.json", "dataset_info.json"])
def test_the_names_of_classes_are_read_from_beside_the_files(tmp_path: Path, name: str):
    path = write_rows(tmp_path, [{"label": n % 2} for n in range(6)])
    names = ["cat\x1b[2J", "dog"]
    info: Any = {"features": {"label": {"names": names, "_type": "ClassLabel"}, "x": "broken"}}
    (tmp_path / name).write_text(json.dumps(names if name == "classes.json" else info))

    assert "2 different: cat\\x1b[2J 50%, dog 50%" in column_line(inspected(path), "label")


@pytest.mark.parametrize("content", ["[", "[1, 2]", "{}", "[" * 100_000])
def test_a_broken_list_of_classes_is_ignored(tmp_path: Path, content: str):
    path = write_rows(tmp_path, [{"label": n % 2} for n in range(6)])
    (tmp_path / "classes.json").write_text(content)

    assert "2 different: 0 50%, 1 50%" in column_line(inspected(path), "label")


def test_a_sample_is_not_of_one_kind_where_kinds_repeat(tmp_path: Path):
    path = write_rows(tmp_path, [{"kind": "abcd"[n % 4]} for n in range(1024)])

    printed = inspected(path)

    assert "columns (sample of 256 records)" in printed
    assert "4 different" in column_line(printed, "kind")


@pytest.mark.parametrize("name", ["numpy", "json_lines", "tfrecord"])
def test_all_records_are_read_on_request(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    path = MAKERS[name](tmp_path)
    whole = inspected(path)
    monkeypatch.setattr("gristmill._cli.inspect._SAMPLE_SIZE", 4)

    assert "sample of 4 records" in inspected(path)
    printed = inspected(path, reads_all=True)

    def columns(text: str) -> str:
        return text.partition("columns")[2].partition("[0]")[0]

    assert columns(printed) == columns(whole)


def test_the_rare_value_is_found_if_all_records_are_read(tmp_path: Path):
    path = write_rows(tmp_path, [{"x": 1000 if n == 777 else n % 5} for n in range(1000)])

    assert "0 to 1000" not in inspected(path)
    assert "0 to 1000" in inspected(path, reads_all=True)


def test_bars_are_left_out_if_the_terminal_cannot_show_them(tmp_path: Path):
    path = write_rows(tmp_path, [{"x": n} for n in range(100)])
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")

    inspect(path, count=1, output=ascii_only)

    assert "█" in inspected(path)
    ascii_only.seek(0)
    assert "0 to 99" in ascii_only.read()


def test_a_page_is_written(tmp_path: Path):
    page = tmp_path / "page.html"

    printed = inspected(MAKERS["image_folder"](tmp_path), page_path=str(page), count=5)

    text = page.read_text(encoding="utf-8")
    assert printed == f"Wrote {page}.\n"
    assert text.count('src="data:image/png;base64,') == 5
    assert "<svg" in text or 'class="class"' in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_a_page_escapes_what_is_in_the_data(tmp_path: Path):
    evil = '"><script>alert(1)</script>\x1b[2J'
    path = write_rows(tmp_path, [{evil: evil, "n": {evil: [evil]}}] * 3)

    inspected(path, page_path=str(tmp_path / "page.html"))

    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path):
    path = write_rows(tmp_path, [{"x": 1}])
    (tmp_path / "file").write_text("")

    with pytest.raises(PlanError, match=r"The page .* cannot be written: .*folder that you may"):
        inspected(path, page_path=str(tmp_path / "file" / "page.html"))


def test_the_command_has_the_flags(tmp_path: Path):
    path = write_rows(tmp_path, [{"x": n} for n in range(3)])
    page = tmp_path / "page.html"

    main(["inspect", path, "--all", "--html", str(page), "-n", "1"])

    assert page.read_text(encoding="utf-8").count("Record ") == 1
