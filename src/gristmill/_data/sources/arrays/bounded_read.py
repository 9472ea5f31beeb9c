"""Decompress no more than a header announces, however much the compressed data contain."""

from typing import IO, Protocol

import numpy as np

from gristmill.errors import CorruptFileError
from gristmill.types import AnyArray

_CHUNK_BYTES = 2**20

_MAX_DEFLATE_RATIO = 1032
"""The most that deflate can shrink data: 258 bytes take two bits."""


class SupportsRead(Protocol):
    """A stream of decompressed bytes."""

    def read(self, num_bytes: int, /) -> bytes:
        """Return at most the given number of bytes; none at the end."""
        ...


def read_announced(stream: SupportsRead | IO[bytes], num_bytes: int) -> AnyArray:
    """Return at most `num_bytes + 1` decompressed bytes.

    One byte more than announced shows that the data are longer. Memory is used only as far as there
    are bytes.

    Args:
        stream: The decompressed data.
        num_bytes: How many bytes the header announces.
    """
    data: AnyArray = np.empty(num_bytes + 1, np.uint8)
    position = 0
    while position <= num_bytes:
        chunk = stream.read(min(_CHUNK_BYTES, num_bytes + 1 - position))
        if not chunk:
            break
        data[position : position + len(chunk)] = np.frombuffer(chunk, np.uint8)
        position += len(chunk)
    return data[:position]


def check_ratio(num_bytes: int, num_compressed: int, path: str) -> None:
    """Raise if deflate cannot compress `num_bytes` to `num_compressed`.

    Args:
        num_bytes: How many bytes the header announces.
        num_compressed: The size of the compressed data.
        path: The file, for the error.
    """
    if num_bytes > num_compressed * _MAX_DEFLATE_RATIO + _CHUNK_BYTES:
        raise CorruptFileError(
            f"The header announces {num_bytes:,} bytes, more than {num_compressed:,} compressed "
            "bytes can hold: the file is damaged or truncated. Copy it again.",
            path=path,
        )
