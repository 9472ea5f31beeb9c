"""Tell a compressed file from one that can be read from the middle."""

from gristmill.errors import FormatError

_COMPRESSIONS = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\x00": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "unzstd"),
}


def refuse_compressed(head: bytes, path: str) -> None:
    """Raise where the first bytes of a file are those of a compressed one.

    >>> refuse_compressed(b"plain", "a.jsonl")
    """
    for magic, (name, command) in _COMPRESSIONS.items():
        if head.startswith(magic):
            raise FormatError(
                f"The file is compressed with {name}, so that no record can be read without all "
                f"before it. Decompress it first, for instance with `{command}`.",
                path=path,
                offset=0,
            )
