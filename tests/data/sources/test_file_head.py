import bz2
import gzip
import lzma

import pyarrow
import pytest

from gristmill._data.sources.file_head import refuse_compressed, refuse_non_utf8
from gristmill.errors import FormatError

COMPRESSED = [
    (gzip.compress(b"text", mtime=0), "gzip", "gunzip"),
    (bz2.compress(b"text"), "bzip2", "bunzip2"),
    (lzma.compress(b"text"), "xz", "unxz"),
    (pyarrow.compress(b"text", "zstd", asbytes=True), "Zstandard", "unzstd"),
]


@pytest.mark.parametrize(("head", "name", "command"), COMPRESSED)
def test_a_compressed_file_is_an_error_with_the_command_that_decompresses_it(
    head: bytes, name: str, command: str
):
    message = (
        rf"^The file is compressed with {name}, so no record can be read without reading all "
        rf"records before it\. Decompress it first, for example with `{command}`\. "
        r"\(a\.jsonl, byte 0\)$"
    )
    for check in (refuse_compressed, refuse_non_utf8):
        with pytest.raises(FormatError, match=message):
            check(head, "a.jsonl")


@pytest.mark.parametrize("head", [b"", b"text", b"\x1f", "é".encode(), b"\xef\xbb\xbftext"])
def test_text_in_utf_8_is_not_an_error(head: bytes):
    refuse_compressed(head, "a.jsonl")
    refuse_non_utf8(head, "a.jsonl")


@pytest.mark.parametrize("head", ["text".encode("utf-16"), b"\xfe\xff\0t\0e"])
def test_utf_16_is_an_error_with_the_command_that_converts_it(head: bytes):
    message = (
        r"^The file is in UTF-16\. Convert it, for example with `iconv -f UTF-16 -t UTF-8`\. "
        r"\(a\.csv, byte 0\)$"
    )
    with pytest.raises(FormatError, match=message):
        refuse_non_utf8(head, "a.csv")


@pytest.mark.parametrize(("head", "offset"), [(b"PAR1\0\1", 4), ("a,b".encode("utf-16-le"), 1)])
def test_zero_bytes_are_an_error_with_the_offset_of_the_first(head: bytes, offset: int):
    message = r"^The file contains zero bytes, so it is not a text file in UTF-8\. Pass another"
    with pytest.raises(FormatError, match=message) as caught:
        refuse_non_utf8(head, "a.csv")
    assert caught.value.offset == offset
