"""The idx format, which MNIST came in: a header that gives the shape, then the items in C order.

bytes 0-1   zero
byte  2     the type of the items
byte  3     the number of axes
then        one big-endian 32-bit length per axis, and the items, big-endian too
"""

import gzip
import io
import struct
import zlib
from dataclasses import replace
from typing import final

import numpy as np

from gristmill.errors import CorruptFileError, FormatError
from gristmill.files import File, as_stream
from gristmill.sources._raw_array import RawArray, check_shape
from gristmill.sources._raw_source import RawSource

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"
_LONGEST_HEADER = 4 + 4 * 255
_BUFFER = 2**20


@final
class IdxSource(RawSource):
    """Random access to the arrays in idx files, as those of MNIST and its kin.

    The records are the items of the arrays; with a dict that names files, dicts of them. Several
    files follow one another. Files on this machine are memory-mapped; those compressed with gzip
    are decompressed into memory, once in each process. Items have this machine's byte order.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 4])), file.flush()
    ...     source = IdxSource({"label": file.name})
    ...     len(source), source[2]
    (3, {'label': np.uint8(4)})
    """

    @staticmethod
    def _find_arrays(file: File) -> RawArray:
        path, size = file.ref.path, file.ref.size
        head = file.read_one(0, min(_LONGEST_HEADER, size))
        if head.startswith(_GZIP_MAGIC):
            return replace(_read_header(_gunzip(file, _LONGEST_HEADER), path), unpack=_gunzip)
        raw = _read_header(head, path)
        raw.check_size(size, path)
        return raw


def _read_header(data: bytes, path: str) -> RawArray:
    if len(data) < 4 or len(data) < 4 + 4 * data[3]:
        raise CorruptFileError(
            "It ends inside its header. Copy it anew.", path=path, offset=len(data)
        )
    name = _DTYPES.get(data[2])
    if data[:2] != b"\0\0" or name is None:
        raise FormatError(
            f"It starts with the bytes {data[:4].hex(' ')}, and an idx file with two zeros and a "
            f"type among {', '.join(f'{code:02x}' for code in _DTYPES)}.",
            path=path,
            offset=0,
        )
    shape: tuple[int, ...] = struct.unpack_from(f">{data[3]}I", data, 4)
    check_shape(shape, path)
    dtype = np.dtype(name)
    return RawArray(
        dtype=dtype, record_dtype=dtype.newbyteorder("="), shape=shape, offset=4 + 4 * len(shape)
    )


def _gunzip(file: File, count: int = -1) -> bytes:
    """Decompress the first bytes of a file, or all of it."""
    raw = as_stream(file)
    try:
        with gzip.GzipFile(fileobj=io.BufferedReader(raw, _BUFFER)) as stream:
            return stream.read(count)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorruptFileError(
            f"It is compressed with gzip, and damaged or cut short ({error}). Copy it anew.",
            path=file.ref.path,
            offset=raw.tell(),
        ) from error
