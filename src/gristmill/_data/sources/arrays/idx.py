"""A source over idx files, the format of MNIST: a header with the shape, then items in C order.

bytes 0-1   zero
byte  2     the type of the items
byte  3     the number of axes
then        one big-endian 32-bit length per axis, followed by the items, also big-endian
"""

import gzip
import io
import struct
import zlib
from dataclasses import replace
from functools import partial
from typing import final

import numpy as np

from gristmill._data.sources.arrays.bounded_read import check_ratio, read_announced
from gristmill._data.sources.arrays.raw_array import RawArray, check_shape
from gristmill._data.sources.arrays.raw_source import RawSource
from gristmill._io.file import File
from gristmill._io.file_object import as_file_object
from gristmill.errors import CorruptFileError, FormatError
from gristmill.types import AnyArray

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_HEADER_BYTES = 4 + 4 * 255
_BUFFER_BYTES = 2**20


@final
class IdxSource(RawSource):
    """Random access to the arrays in idx files, the format of MNIST and similar datasets.

    The records are the items of the arrays, or dicts of items if `paths` is a dict. Several files
    are concatenated. Files on this machine are memory-mapped. Files compressed with gzip are
    decompressed into memory, once in each process. Items have the byte order of this machine.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 4])), file.flush()
    ...     source = IdxSource({"label": file.name})
    ...     len(source), source[2]
    (3, {'label': np.uint8(4)})

    Args:
        paths: A path, a URL, a pattern with `*`, or a list of them. A dict of these names the
            arrays, and then records are dicts; all arrays must have the same length.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        PlanError: If `paths` names no file.
        FormatError: When records are first read, if a file is not an IDX file.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    @staticmethod
    def _find_arrays(file: File) -> RawArray:
        path, size = file.ref.path, file.ref.size
        head = file.read_one(0, min(_MAX_HEADER_BYTES, size))
        if head.startswith(_GZIP_MAGIC):
            raw = _parse_header(_decompress(file, num_bytes=_MAX_HEADER_BYTES).tobytes(), path)
            announced = raw.offset + raw.num_bytes
            check_ratio(announced, size, path)
            return replace(raw, decompress=partial(_decompress, num_bytes=announced))
        raw = _parse_header(head, path)
        raw.check_size(size, path)
        return raw


def _parse_header(data: bytes, path: str) -> RawArray:
    if len(data) < 4 or len(data) < 4 + 4 * data[3]:
        raise CorruptFileError(
            "The file ends inside its header. Copy it again.", path=path, offset=len(data)
        )
    name = _DTYPES.get(data[2])
    if data[:2] != b"\0\0" or name is None:
        raise FormatError(
            f"The file starts with the bytes {data[:4].hex(' ')}, but an idx file starts with two "
            f"zeros and a type among {', '.join(f'{code:02x}' for code in _DTYPES)}.",
            path=path,
            offset=0,
        )
    shape: tuple[int, ...] = struct.unpack_from(f">{data[3]}I", data, 4)
    dtype = np.dtype(name)
    check_shape(shape, dtype.itemsize, path)
    return RawArray(
        dtype=dtype, record_dtype=dtype.newbyteorder("="), shape=shape, offset=4 + 4 * len(shape)
    )


def _decompress(file: File, *, num_bytes: int) -> AnyArray:
    """Return the first decompressed bytes of a gzip file, at most one more than `num_bytes`."""
    raw = as_file_object(file)
    try:
        with gzip.GzipFile(fileobj=io.BufferedReader(raw, _BUFFER_BYTES)) as stream:
            return read_announced(stream, num_bytes)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorruptFileError(
            f"The gzip file is damaged or truncated ({error}). Copy it again.",
            path=file.ref.path,
            offset=raw.tell(),  # words: a method of file objects
        ) from error
