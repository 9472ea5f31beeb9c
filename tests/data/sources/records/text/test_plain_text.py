import gzip
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._data.sources.records.text.plain_text import TextSource
from gristmill.errors import CorruptFileError, FormatError, PlanError
from gristmill.testing import SourceSuite

LINES = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=5)


class TestLines(SourceSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> TextSource:
        (tmp_path / "a.txt").write_text("".join(f"line {i}\n" for i in range(40)))
        (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"last\n\n"))
        return TextSource([tmp_path / "a.txt", tmp_path / "b.txt.gz"])


class TestParagraphs(SourceSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> TextSource:
        (tmp_path / "a.txt").write_text("".join(f"a {i}\nb\n\n" for i in range(40)))
        return TextSource(tmp_path / "a.txt", by="paragraph")


@settings(deadline=None, max_examples=100)
@given(st.lists(LINES), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_lines_are_those_of_a_text_file(lines: list[str], end: str, is_ended: bool, has_mark: bool):
    text = end.join(lines) + (end if is_ended else "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        path.write_bytes((b"\xef\xbb\xbf" if has_mark else b"") + text.encode())
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            expected = [line.removesuffix("\n").removesuffix("\r") for line in file]
        if "\0" in text or text[:1] == "\ufeff":
            return  # refused; and Python drops a second byte order mark
        source = TextSource(path)
        assert len(source) == len(expected)
        assert source.__getitems__(range(len(source))) == expected


@pytest.mark.parametrize(
    ("text", "paragraphs"),
    [
        ("", []),
        ("\n\n \n", []),
        ("a", ["a"]),
        ("\n\na\nb\n\n\t\nc\n", ["a\nb", "c"]),
        ("a\r\nb\r\n\r\nc\r\n", ["a\nb", "c"]),
    ],
)
def test_blank_lines_separate_paragraphs(tmp_path: Path, text: str, paragraphs: list[str]):
    (tmp_path / "a.txt").write_bytes(text.encode())
    source = TextSource(tmp_path / "a.txt", by="paragraph")
    assert [source[index] for index in range(len(source))] == paragraphs


def test_a_line_over_several_chunks_is_one_record(tmp_path: Path):
    long = "é" * 5 * 2**20
    (tmp_path / "a.txt").write_text(f"a\n{long}\r\nb", newline="")
    source = TextSource(tmp_path / "a.txt")
    assert source.__getitems__([2, 1, 0]) == ["b", long, "a"]


def test_bytes_that_are_not_utf_8_are_an_error_of_their_record(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"good\nb\xe9se\n")
    source = TextSource(tmp_path / "a.txt")
    assert source[0] == "good"
    with pytest.raises(CorruptFileError, match=r"^The line is not UTF-8: .*iconv") as caught:
        source.__getitems__([0, 1])
    assert (caught.value.record, caught.value.offset) == (1, 6)


def test_a_binary_file_is_an_error(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"a\0b")
    with pytest.raises(FormatError, match="zero bytes"):
        len(TextSource(tmp_path / "a.txt"))


def test_an_unknown_kind_of_record_is_an_error(tmp_path: Path):
    kind: Any = "word"
    with pytest.raises(PlanError, match=r"^`by` must be 'line' or 'paragraph', got 'word'\.$"):
        TextSource(tmp_path, by=kind)
