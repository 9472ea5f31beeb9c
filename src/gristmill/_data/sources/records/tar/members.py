"""Find the files in a tar archive by reading only its headers.

    | header | data ... | padding | header | data ... | ... | zeros | zeros |
      512                to 512

A header contains the size of the data after it, so the next header is where these data end. An
attribute that does not fit into a header (a long name, a large size) is in a pax or GNU member
before it.
"""

import tarfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias, final

from gristmill._data.sources.file_head import refuse_compressed
from gristmill._io.file import File
from gristmill.errors import CorruptFileError, FileError, FormatError

ENCODING = ("utf-8", "surrogateescape")
"""The encoding of names, and the error handler for names in other encodings."""

_BLOCK_BYTES = tarfile.BLOCKSIZE
_ZEROS = bytes(_BLOCK_BYTES)
_WINDOW_BYTES = 32 * 1024
"""Bytes to read from a local file at a time: they may contain the next header."""

_PADDING_WINDOW_BYTES = 64 * 1024
"""Bytes to check at a time: writers pad an archive with zeros, usually to a multiple of 10,240."""

_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_WITHOUT_DATA = (
    tarfile.LNKTYPE,
    tarfile.SYMTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
)
_EXTENDED_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


Attributes: TypeAlias = dict[bytes, bytes]
"""Attributes of a member that are not in its own header."""


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    offset: int
    """Where its header begins."""
    start: int
    """Where its data begin."""
    stop: int
    """Where its data end."""


def read_members(
    file: File, reader: "ForwardReader | None" = None, offset: int = 0
) -> Iterator[Member]:
    """Yield the files in an archive. The contents of files in a local archive are not read.

    Args:
        file: The archive.
        reader: Reads the archive from `offset` on. The caller may use it to read the contents of
            the last file that was yielded.
        offset: Where the header of the first file begins.
    """
    reader = reader or ForwardReader(file, offset)
    for_all: Attributes = {}
    for_next: Attributes = {}
    while (header := reader.read(offset, _BLOCK_BYTES)) != _ZEROS:
        _check_header(header, file, offset)
        kind = header[156:157]
        start = offset + _BLOCK_BYTES
        if kind in _EXTENDED_HEADERS:
            stop = start + _size(header, {}, file, offset)
            attributes = _parse_attributes(kind, reader.read(start, stop - start), file, offset)
            (for_all if kind == tarfile.XGLTYPE else for_next).update(attributes)
        else:
            attributes = for_all | for_next
            _refuse_sparse(kind, attributes, file, offset)
            size = 0 if kind in _WITHOUT_DATA else _size(header, attributes, file, offset)
            stop = start + size
            name = attributes.get(b"path") or _name(header)
            if kind in _REGULAR and not name.endswith(b"/"):  # old writers mark folders like this
                yield Member(str(name, *ENCODING), offset, start, stop)
            for_next = {}
        offset = stop + -stop % _BLOCK_BYTES
    # To the end of the file: a hole of zeros inside an archive looks like its end.
    while offset < file.ref.size:
        padding = reader.read(offset, min(_PADDING_WINDOW_BYTES, file.ref.size - offset))
        if not padding.strip(b"\x00"):
            offset += len(padding)
            continue
        raise CorruptFileError(
            "There is more data after the end of the archive. If archives were concatenated, pass "
            "them one by one, or join them with `tar --concatenate`. Otherwise a part of the "
            "archive is zeros: copy it again.",
            path=file.ref.path,
            offset=offset,
        )


@final
class ForwardReader:
    """Reads ranges of a file in increasing order."""

    def __init__(self, file: File, start: int = 0) -> None:
        self._file = file
        self._size = file.ref.size
        self._begin = self._end = start
        self._data = b""
        # For a store, reading everything is faster than a request for each header.
        self._chunks = None if file.ref.is_local else file.chunks(start)

    def read(self, start: int, num_bytes: int) -> bytes:
        """Return some bytes, none of which is before one that was read earlier."""
        stop = start + num_bytes
        if stop > self._end:
            self._fill(start, stop)
        return self._data[start - self._begin : stop - self._begin]

    def _fill(self, start: int, stop: int) -> None:
        if stop > self._size:
            raise self._truncated(start)
        if self._chunks is None:
            self._begin, self._end = start, min(max(stop, start + _WINDOW_BYTES), self._size)
            self._data = self._file.read_one(self._begin, self._end)
            return
        while stop > self._end:
            buffered = self._data[start - self._begin :] if start < self._end else b""
            self._data = buffered + next(self._chunks)
            self._begin = self._end - len(buffered)
            self._end = self._begin + len(self._data)

    def _truncated(self, start: int) -> FileError:
        if not start and self._size:  # shorter than a header
            refuse_compressed(self._file.read_one(0, self._size), self._file.ref.path)
            return _not_an_archive(self._file)
        return CorruptFileError(
            "The archive ends without the blocks of zeros that mark its end: it is truncated. "
            "Copy it again.",
            path=self._file.ref.path,
            offset=start,
        )


def _check_header(header: bytes, file: File, offset: int) -> None:
    """Raise if a block is not a header."""
    try:
        stored = _number(header[148:156])
    except ValueError:
        stored = -1
    # The checksum is the sum of all bytes, with its own bytes taken as spaces. Adler-32 contains
    # that sum modulo 65,521, at the speed of C.
    summed = header[:148] + b" " * 8 + header[156:]
    if zlib.adler32(summed) & 0xFFFF == (stored + 1) % 65521:
        return
    if stored == sum(summed) - 256 * sum(byte > 127 for byte in summed):
        return  # old writers summed signed bytes
    if not offset:
        refuse_compressed(header, file.ref.path)
        raise _not_an_archive(file)
    raise _damaged("the checksum of a header does not match", file, offset)


def _number(field: bytes) -> int:
    """Parse a number: octal digits, or big-endian bytes if it has too many digits."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big", signed=field[0] == 0xFF)
    return int(field.partition(b"\x00")[0].strip() or b"0", 8)


def _size(header: bytes, attributes: Attributes, file: File, offset: int) -> int:
    """Return the size of a member's data, or raise if they do not fit into the archive."""
    try:
        size = int(attributes[b"size"]) if b"size" in attributes else _number(header[124:136])
    except ValueError:
        size = -1
    if size < 0:
        raise _damaged("the size of a file is not a number", file, offset)
    if offset + _BLOCK_BYTES + size > file.ref.size:
        raise CorruptFileError(
            f"The archive ends at byte {file.ref.size:,}, inside a file of {size:,} bytes: it is "
            "truncated. Copy it again.",
            path=file.ref.path,
            offset=offset,
        )
    return size


def _name(header: bytes) -> bytes:
    name = header[:100].partition(b"\x00")[0]
    # Where POSIX tar stores the folders of a long name, GNU tar stores times.
    prefix = header[345:500].partition(b"\x00")[0] if header[257:263] == b"ustar\x00" else b""
    return prefix + b"/" + name if prefix else name


def _parse_attributes(kind: bytes, data: bytes, file: File, offset: int) -> Attributes:
    """Parse the content of an extended header."""
    if kind == tarfile.GNUTYPE_LONGNAME:
        return {b"path": data.partition(b"\x00")[0]}
    if kind == tarfile.GNUTYPE_LONGLINK:
        return {}
    attributes: Attributes = {}
    position = 0
    try:
        while position < len(data) and data[position]:
            space = data.index(b" ", position)
            stop = position + int(data[position:space])
            if not space < stop <= len(data):
                raise ValueError
            key, _, value = data[space + 1 : stop - 1].partition(b"=")
            attributes[key] = value
            position = stop
    except ValueError:
        raise _damaged("a pax header cannot be parsed", file, offset) from None
    return attributes


def _refuse_sparse(kind: bytes, attributes: Attributes, file: File, offset: int) -> None:
    is_sparse = any(key.startswith(b"GNU.sparse") for key in attributes)
    if kind == tarfile.GNUTYPE_SPARSE or is_sparse:
        raise FormatError(
            "The archive holds a sparse file, which does not store all of its bytes. Create the "
            "archive again without `--sparse`.",
            path=file.ref.path,
            offset=offset,
        )


def _not_an_archive(file: File) -> FormatError:
    return FormatError(
        "The file is not a tar archive. Pass archives written by `tar` or by WebDataset.",
        path=file.ref.path,
        offset=0,
    )


def _damaged(problem: str, file: File, offset: int) -> CorruptFileError:
    return CorruptFileError(
        f"The archive is damaged: {problem}. Copy it again.", path=file.ref.path, offset=offset
    )
