import gzip
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill.errors import CorruptFileError, FormatError
from gristmill.files import File, OpenFiles, _local, find_files
from gristmill.sources._csv_records import index_records


def opened(path: Path, data: bytes) -> File:
    path.write_bytes(data)
    return OpenFiles(find_files(path))[0]


def records_of(file: File, *, delimiter: str = ",", has_header: bool = False) -> list[bytes]:
    index = index_records(file, delimiter=delimiter, has_header=has_header)
    assert index["starts"].dtype == index["stops"].dtype == np.int64
    return file.read(index["starts"].tolist(), index["stops"].tolist())


def read_byte_by_byte(text: bytes, delimiter: int) -> list[bytes] | None:
    """Split a text into records the plain way; None if a quote is never closed."""
    records, begin, is_inside, place = list[bytes](), 0, False, 0
    while place < len(text):
        byte = text[place]
        if is_inside:
            if byte == ord('"') and text[place + 1 : place + 2] == b'"':
                place += 1  # a quote within quotes
            elif byte == ord('"'):
                is_inside = False
        elif byte == ord('"') and (place == 0 or text[place - 1] in (delimiter, 10, 13)):
            is_inside = True
        elif byte in b"\r\n":
            records.append(text[begin:place])
            begin = place + 1
        place += 1
    return None if is_inside else [record for record in [*records, text[begin:]] if record]


@settings(max_examples=200, deadline=None)
@given(
    text=st.lists(st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b"bc"])).map(
        b"".join
    ),
    chunk=st.integers(1, 9),
    delimiter=st.sampled_from(",;"),
)
@example(text=b'a,"b""\n"\n5" pipe\nc', chunk=2, delimiter=",")
@example(text=b'"a"x"b\nc"\n', chunk=3, delimiter=",")
@example(text=b'x""\n"\n"', chunk=1, delimiter=",")
def test_records_are_those_of_a_walk_byte_by_byte(text: bytes, chunk: int, delimiter: str):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_local, "CHUNK", chunk)
        file = opened(Path(folder, "a.csv"), text)
        expected = read_byte_by_byte(text, ord(delimiter))
        if expected is not None:
            assert records_of(file, delimiter=delimiter) == expected
        else:
            with pytest.raises(CorruptFileError):
                records_of(file, delimiter=delimiter)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_a_byte_order_mark_is_no_part_of_the_first_record(
    tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
):
    file = opened(tmp_path / "a.csv", b'\xef\xbb\xbf"a\nb",c\nd\n')
    monkeypatch.setattr(_local, "CHUNK", max(chunk, 3))
    assert records_of(file) == [b'"a\nb",c', b"d"]


def test_a_header_is_no_record(tmp_path: Path):
    file = opened(tmp_path / "a.csv", b'\r\n"a\n",b\r\n1,2\r\n\r\n3,4')
    assert records_of(file, has_header=True) == [b"1,2", b"3,4"]
    assert records_of(opened(tmp_path / "b.csv", b"a,b"), has_header=True) == []


@pytest.mark.parametrize(("has_header", "record"), [(False, 2), (True, 1)])
def test_a_quote_that_is_never_closed_is_told_with_its_place(
    tmp_path: Path, has_header: bool, record: int
):
    file = opened(tmp_path / "a.csv", b'a,b\n1,"x"\n3,"x\n5,6\n')
    told = (
        "A quote is opened and never closed: the file was cut short, or a quote in a text was not "
        f"doubled. ({tmp_path}/a.csv, byte 12, record {record})"
    )
    with pytest.raises(CorruptFileError, match=re.escape(told)):
        records_of(file, has_header=has_header)


def test_compressed_files_are_refused(tmp_path: Path):
    with pytest.raises(FormatError, match="compressed with gzip"):
        records_of(opened(tmp_path / "a.csv.gz", gzip.compress(b"a,b\n")))


def test_texts_that_are_not_utf_8_are_refused(tmp_path: Path):
    told = "The file holds bytes of zero, as no text in UTF-8 does. Convert it, for instance"
    with pytest.raises(FormatError, match=re.escape(told)) as caught:
        records_of(opened(tmp_path / "a.csv", "a,b\n".encode("utf-16-le")))
    assert caught.value.offset == 1
