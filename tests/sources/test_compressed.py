import bz2
import gzip
import lzma

import pyarrow
import pytest

from gristmill.errors import FormatError
from gristmill.sources._compressed import refuse_compressed


@pytest.mark.parametrize(
    ("head", "name", "command"),
    [
        (gzip.compress(b"text", mtime=0), "gzip", "gunzip"),
        (bz2.compress(b"text"), "bzip2", "bunzip2"),
        (lzma.compress(b"text"), "xz", "unxz"),
        (pyarrow.compress(b"text", "zstd", asbytes=True), "Zstandard", "unzstd"),
    ],
)
def test_a_compressed_file_is_refused_with_the_command_that_helps(
    head: bytes, name: str, command: str
):
    message = (
        rf"^The file is compressed with {name}, so that no record can be read without all before "
        rf"it\. Decompress it first, for instance with `{command}`\. \(a\.jsonl, byte 0\)$"
    )
    with pytest.raises(FormatError, match=message):
        refuse_compressed(head, "a.jsonl")


@pytest.mark.parametrize("head", [b"", b"text", b"\x1f"])
def test_other_files_are_not(head: bytes):
    refuse_compressed(head, "a.jsonl")
