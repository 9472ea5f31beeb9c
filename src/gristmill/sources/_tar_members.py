"""The files in a tar archive, found by its headers alone.

    | header | data ... | padding | header | data ... | ... | zeros | zeros |
      512                to 512

A header tells how long the data behind it are, so the next one is where they end. What does not
fit into a header (long names, large sizes) is told by a member in front of it: pax or GNU.
"""

import tarfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias, final

from gristmill.errors import CorruptFileError, FileError, FormatError
from gristmill.files import File
from gristmill.sources._compressed import refuse_compressed

ENCODING = ("utf-8", "surrogateescape")
"""How names are written, and what is done about those that are not."""

_BLOCK = tarfile.BLOCKSIZE
_ZEROS = bytes(_BLOCK)
_WINDOW = 32 * 1024
"""Bytes to read from a file on this machine at a time: the next header may be among them."""

_END_RECORD = 64 * 1024
"""Writers fill the last record up with zeros, mostly to 10,240 bytes."""

_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_WITHOUT_DATA = (
    tarfile.LNKTYPE,
    tarfile.SYMTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
)
_ABOUT_THE_NEXT = (
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


Words: TypeAlias = dict[bytes, bytes]
"""What is told about a member beside its header."""


class Member(NamedTuple):
    """A file in an archive: its name, where its header is, and its bytes."""

    name: str
    offset: int
    start: int
    stop: int


def read_members(file: File) -> Iterator[Member]:
    """Give the files in an archive, without reading what is in them from this machine."""
    blocks = _Blocks(file)
    always: Words = {}
    once: Words = {}  # about the next member alone
    offset = 0
    while (header := blocks.read(offset, _BLOCK)) != _ZEROS:
        _check_header(header, file, offset)
        kind = header[156:157]
        start = offset + _BLOCK
        if kind in _ABOUT_THE_NEXT:
            stop = start + _size(header, {}, file, offset)
            words = _parse(kind, blocks.read(start, stop - start), file, offset)
            (always if kind == tarfile.XGLTYPE else once).update(words)
        else:
            told = always | once
            _refuse_sparse(kind, told, file, offset)
            stop = start if kind in _WITHOUT_DATA else start + _size(header, told, file, offset)
            name = told.get(b"path") or _name(header)
            if kind in _REGULAR and not name.endswith(b"/"):  # which old writers tell folders by
                yield Member(str(name, *ENCODING), offset, start, stop)
            once = {}
        offset = stop + -stop % _BLOCK
    rest = blocks.read(offset, min(_END_RECORD, file.ref.size - offset))
    if rest.strip(b"\x00"):
        raise CorruptFileError(
            "There is more behind the end of the archive. If archives were joined, pass them one "
            "by one, or join them with `tar --concatenate`.",
            path=file.ref.path,
            offset=offset,
        )


@final
class _Blocks:
    """Gives parts of a file, each behind the last one."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._size = file.ref.size
        self._begin = self._end = 0
        self._data = b""
        # From a store it is quicker to read on than to ask for every header.
        self._chunks = None if file.ref.is_local else file.chunks()

    def read(self, start: int, count: int) -> bytes:
        stop = start + count
        if stop > self._end:
            self._fill(start, stop)
        return self._data[start - self._begin : stop - self._begin]

    def _fill(self, start: int, stop: int) -> None:
        if stop > self._size:
            raise self._too_short(start)
        if self._chunks is None:
            self._begin, self._end = start, min(max(stop, start + _WINDOW), self._size)
            self._data = self._file.read_one(self._begin, self._end)
            return
        while stop > self._end:
            kept = self._data[start - self._begin :] if start < self._end else b""
            self._data = kept + next(self._chunks)
            self._begin = self._end - len(kept)
            self._end = self._begin + len(self._data)

    def _too_short(self, start: int) -> FileError:
        if not start and self._size:  # less than a header
            refuse_compressed(self._file.read_one(0, self._size), self._file.ref.path)
            return _no_archive(self._file)
        return CorruptFileError(
            "The archive ends without the blocks of zeros that mark its end: it was cut short. "
            "Copy it anew.",
            path=self._file.ref.path,
            offset=start,
        )


def _check_header(header: bytes, file: File, offset: int) -> None:
    """Raise where a block is no header."""
    try:
        told = _number(header[148:156])
    except ValueError:
        told = -1
    # It is the sum of all bytes, its own taken as spaces. Adler-32 has that, but for the part
    # above 65,521, at the speed of C.
    summed = header[:148] + b" " * 8 + header[156:]
    if zlib.adler32(summed) & 0xFFFF == (told + 1) % 65521:
        return
    if told == sum(summed) - 256 * sum(byte > 127 for byte in summed):
        return  # old writers took bytes as signed
    if not offset:
        refuse_compressed(header, file.ref.path)
        raise _no_archive(file)
    raise _damaged("the checksum of a header does not fit", file, offset)


def _number(field: bytes) -> int:
    """Read a number: octal digits, or bytes of it where these are too few."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big", signed=field[0] == 0xFF)
    return int(field.partition(b"\x00")[0].strip() or b"0", 8)


def _size(header: bytes, told: Words, file: File, offset: int) -> int:
    try:
        size = int(told[b"size"]) if b"size" in told else _number(header[124:136])
    except ValueError:
        size = -1
    if size < 0:
        raise _damaged("the size of a file is no number", file, offset)
    if offset + _BLOCK + size > file.ref.size:
        raise CorruptFileError(
            f"The archive ends at byte {file.ref.size:,}, within a file of {size:,} bytes: it was "
            "cut short. Copy it anew.",
            path=file.ref.path,
            offset=offset,
        )
    return size


def _name(header: bytes) -> bytes:
    name = header[:100].partition(b"\x00")[0]
    # GNU tar keeps times where others keep what is in front of the name.
    prefix = header[345:500].partition(b"\x00")[0] if header[257:263] == b"ustar\x00" else b""
    return prefix + b"/" + name if prefix else name


def _parse(kind: bytes, data: bytes, file: File, offset: int) -> Words:
    """Read what a member tells about another one."""
    if kind == tarfile.GNUTYPE_LONGNAME:
        return {b"path": data.partition(b"\x00")[0]}
    if kind == tarfile.GNUTYPE_LONGLINK:
        return {}
    words: Words = {}
    position = 0
    try:
        while position < len(data) and data[position]:
            space = data.index(b" ", position)
            stop = position + int(data[position:space])
            if not space < stop <= len(data):
                raise ValueError
            key, _, value = data[space + 1 : stop - 1].partition(b"=")
            words[key] = value
            position = stop
    except ValueError:
        raise _damaged("a pax header cannot be read", file, offset) from None
    return words


def _refuse_sparse(kind: bytes, told: Words, file: File, offset: int) -> None:
    if kind == tarfile.GNUTYPE_SPARSE or any(key.startswith(b"GNU.sparse") for key in told):
        raise FormatError(
            "The archive holds a sparse file, whose bytes are not all there. Make the archive "
            "anew without `--sparse`.",
            path=file.ref.path,
            offset=offset,
        )


def _no_archive(file: File) -> FormatError:
    return FormatError(
        "The file is not a tar archive. Pass archives as `tar` or WebDataset's writers make them.",
        path=file.ref.path,
        offset=0,
    )


def _damaged(problem: str, file: File, offset: int) -> CorruptFileError:
    return CorruptFileError(
        f"The archive is damaged: {problem}. Copy it anew.", path=file.ref.path, offset=offset
    )
