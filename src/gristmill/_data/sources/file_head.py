"""Recognise from the first bytes of a file that it cannot be read by its records."""

from gristmill.errors import FormatError

UTF8_BOM = b"\xef\xbb\xbf"
"""The byte order mark, which some programs write before UTF-8 text."""

_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")

_COMPRESSIONS = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\x00": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "unzstd"),
}


def refuse_compressed(head: bytes, path: str) -> None:
    """Raise `FormatError` if a file starts like a compressed file.

    >>> refuse_compressed(b"plain", "a.jsonl")

    Args:
        head: The first bytes of the file, at least 6 if it has as many.
        path: The file, for the error.
    """
    for magic, (name, command) in _COMPRESSIONS.items():
        if head.startswith(magic):
            raise FormatError(
                f"The file is compressed with {name}, so no record can be read without reading all "
                f"records before it. Decompress it first, for example with `{command}`.",
                path=path,
                offset=0,
            )


def refuse_non_utf8(head: bytes, path: str) -> None:
    r"""Raise `FormatError` if a file does not start like a text file in UTF-8.

    Compressed files, UTF-16 with a byte order mark, and files with zero bytes are recognised.

    >>> refuse_non_utf8(b"a,b\n", "a.csv")

    Args:
        head: The first bytes of the file; the more, the more binary files are recognised.
        path: The file, for the error.
    """
    refuse_compressed(head, path)
    if head.startswith(_UTF16_BOMS):
        raise FormatError(
            "The file is in UTF-16. Convert it, for example with `iconv -f UTF-16 -t UTF-8`.",
            path=path,
            offset=0,
        )
    if b"\x00" in head:
        raise FormatError(
            "The file contains zero bytes, so it is not a text file in UTF-8. Pass another file, "
            "or convert this one, for example with `iconv -f UTF-16 -t UTF-8`.",
            path=path,
            offset=head.index(b"\x00"),
        )
