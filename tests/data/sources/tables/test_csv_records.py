import gzip
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill._data.sources.tables.csv_records import index_records
from gristmill._io import local as _local
from gristmill._io.file import File
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files
from gristmill.errors import CorruptFileError, FormatError


def opened(path: Path, data: bytes) -> File:
    path.write_bytes(data)
    return OpenFiles(find_files(path))[0]


def records_of(file: File, *, delimiter: str = ",", has_header: bool = False) -> list[bytes]:
    index = index_records(file, delimiter=delimiter, has_header=has_header)
    assert index["starts"].dtype == index["stops"].dtype == np.int64
    return file.read(index["starts"].tolist(), index["stops"].tolist())


def split_byte_by_byte(data: bytes, delimiter: int) -> list[bytes] | None:
    """Split CSV into records, byte by byte; return None if a quote is never closed."""
    records, begin, is_inside, at = list[bytes](), 0, False, 0
    while at < len(data):
        byte = data[at]
        if is_inside:
            if byte == ord('"') and data[at + 1 : at + 2] == b'"':
                at += 1  # a quote inside quotes
            elif byte == ord('"'):
                is_inside = False
        elif byte == ord('"') and (at == 0 or data[at - 1] in (delimiter, 10, 13)):
            is_inside = True
        elif byte in b"\r\n":
            records.append(data[begin:at])
            begin = at + 1
        at += 1
    return None if is_inside else [record for record in [*records, data[begin:]] if record]


@settings(max_examples=200, deadline=None)
@given(
    data=st.lists(st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b"bc"])).map(
        b"".join
    ),
    chunk=st.integers(1, 9),
    delimiter=st.sampled_from(",;"),
)
@example(data=b'a,"b""\n"\n5" pipe\nc', chunk=2, delimiter=",")
@example(data=b'"a"x"b\nc"\n', chunk=3, delimiter=",")
@example(data=b'x""\n"\n"', chunk=1, delimiter=",")
def test_records_equal_those_found_byte_by_byte(data: bytes, chunk: int, delimiter: str):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_local, "CHUNK_BYTES", chunk)
        file = opened(Path(folder, "a.csv"), data)
        expected = split_byte_by_byte(data, ord(delimiter))
        if expected is not None:
            assert records_of(file, delimiter=delimiter) == expected
        else:
            with pytest.raises(CorruptFileError):
                records_of(file, delimiter=delimiter)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_a_byte_order_mark_is_not_part_of_the_first_record(
    tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
):
    file = opened(tmp_path / "a.csv", b'\xef\xbb\xbf"a\nb",c\nd\n')
    monkeypatch.setattr(_local, "CHUNK_BYTES", max(chunk, 3))
    assert records_of(file) == [b'"a\nb",c', b"d"]


def test_a_header_is_not_a_record(tmp_path: Path):
    file = opened(tmp_path / "a.csv", b'\r\n"a\n",b\r\n1,2\r\n\r\n3,4')
    assert records_of(file, has_header=True) == [b"1,2", b"3,4"]
    assert records_of(opened(tmp_path / "b.csv", b"a,b"), has_header=True) == []


@pytest.mark.parametrize(("has_header", "record"), [(False, 2), (True, 1)])
def test_a_quote_that_is_never_closed_is_an_error_with_its_offset(
    tmp_path: Path, has_header: bool, record: int
):
    file = opened(tmp_path / "a.csv", b'a,b\n1,"x"\n3,"x\n5,6\n')
    message = (
        "A quote is opened and never closed: the file is truncated, or a quote inside a field is "
        f"not doubled. ({tmp_path}/a.csv, byte 12, record {record})"
    )
    with pytest.raises(CorruptFileError, match=re.escape(message)):
        records_of(file, has_header=has_header)


def test_a_compressed_file_is_an_error(tmp_path: Path):
    with pytest.raises(FormatError, match="compressed with gzip"):
        records_of(opened(tmp_path / "a.csv.gz", gzip.compress(b"a,b\n")))


def test_a_file_that_is_not_utf_8_is_an_error(tmp_path: Path):
    message = "The file contains zero bytes, so it is not a text file in UTF-8."
    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        records_of(opened(tmp_path / "a.csv", "a,b\n".encode("utf-16-le")))
    assert caught.value.offset == 1
