import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._data.sources.records.text.lines import index_lines
from gristmill._io.file import File
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files
from gristmill.errors import FormatError


class SmallChunks(File):
    """A file with chunks of a few bytes, so that lines are split anywhere."""

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size

    @property
    def ref(self):
        return self._file.ref

    def read(self, starts, stops):
        return self._file.read(starts, stops)

    def chunks(self, start: int = 0, stop: int | None = None):
        data = self.read_one(start, self.ref.size if stop is None else stop)
        return (data[first : first + self._size] for first in range(0, len(data), self._size))

    def local_path(self) -> Path:
        return self._file.local_path()

    def check_unchanged(self) -> None:
        self._file.check_unchanged()


def lines_of(data: bytes, chunk: int | None = None) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text")
        path.write_bytes(data)
        file = OpenFiles(find_files(path))[0]
        index = index_lines(file if chunk is None else SmallChunks(file, chunk))
        assert index["starts"].dtype == index["stops"].dtype == "int64"
        return file.read(index["starts"].tolist(), index["stops"].tolist())


CONTENTS = st.lists(
    st.sampled_from([b"a", b"bc", b" ", b"\t", b"\r", b"\r\n", b"\n", "é".encode()]), max_size=40
).map(b"".join)


@settings(deadline=None, max_examples=60)
@given(CONTENTS, st.integers(1, 9))
def test_lines_are_those_between_line_feeds_that_are_not_blank(data: bytes, chunk: int):
    expected = [line for line in data.split(b"\n") if line.strip()]

    assert lines_of(data) == expected
    assert lines_of(data, chunk) == expected


@pytest.mark.parametrize("chunk", [None, 3, 4])
def test_a_byte_order_mark_is_not_part_of_the_first_line(chunk: int | None):
    assert lines_of(b"\xef\xbb\xbfa\nb", chunk) == [b"a", b"b"]


@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n \n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_of_white_space_has_no_lines(data: bytes):
    assert lines_of(data) == []


def test_a_long_line_may_extend_over_many_chunks():
    assert lines_of(b"x" * 10_000_000 + b"\ny") == [b"x" * 10_000_000, b"y"]


def test_a_compressed_file_is_an_error():
    with pytest.raises(FormatError, match=r"^The file is compressed with gzip, "):
        lines_of(gzip.compress(b"a\n"))


def test_a_file_that_is_not_text_is_an_error():
    with pytest.raises(FormatError, match=r"^The file contains zero bytes") as caught:
        lines_of(b"PAR1\x00\x01")
    assert caught.value.offset == 4
