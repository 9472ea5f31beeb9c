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


_KNOWN_CONTENTS = {
    b"%PDF": "a PDF document",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive",
    b"\x80\x04": "a Python pickle",
    b"\x80\x05": "a Python pickle",
    b"ID3": "an MP3 file",
    b"RIFF": "a WAV, AVI or WebP file",
    b"<": "XML or HTML",
}


def describe_content(head: bytes, detected: str | None, compression: str | None) -> str:
    """Return what a file of unknown format seems to be, as the end of a clause.

    >>> describe_content(b"[1, 2]", None, "gzip")
    ': the file seems to be a JSON array, compressed with gzip'

    Args:
        head: The first bytes of the file, decompressed.
        detected: The name of the format, if it is known.
        compression: The name of the compression, if the file is compressed.
    """
    stripped = head.removeprefix(UTF8_BOM).lstrip()
    kinds = (kind for magic, kind in _KNOWN_CONTENTS.items() if head.startswith(magic))
    kind = detected or next(kinds, None)
    if kind is None and stripped.startswith(b"["):
        kind = "a JSON array"
    if kind is None and stripped.startswith(b"{"):
        kind = "a JSON object, or JSON Lines"
    if kind is None and stripped and b"\0" not in head and _is_utf8(head):
        kind = "plain text"
    if kind is None and compression is None:
        return "" if head else ": the file is empty"
    packed = f"{', ' if kind else ''}compressed with {compression}" if compression else ""
    return f": the file seems to be {kind or ''}{packed}"


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4  # a character that is cut off here
    return True
