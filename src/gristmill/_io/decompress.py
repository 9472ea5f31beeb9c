"""Read compressed files: decompressed once into the cache folder, then by any byte range.

No record of a compressed file can be read without the bytes before it. So the first process that
opens such a file decompresses it, with bounded memory, and all others read that copy.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, final

from gristmill._base.extras import load_extra
from gristmill._base.progress import progress
from gristmill._io.file import File, FileRef
from gristmill._io.folders.cache import write_once
from gristmill._io.index_checks import identity_of
from gristmill._io.local import LocalFile, find_local
from gristmill._io.open_files import open_file
from gristmill.errors import CorruptFileError
from gristmill.types import Indices

_OUTPUT_BYTES = 2**20
"""Bytes that are decompressed at a time."""

_INPUT_BYTES = 2**14
"""Bytes that a decoder gets at a time. Each of many short streams copies what is left of them."""

_ZSTD_INPUT_BYTES = 2**12
"""Bytes that zstandard decompresses at a time. It has no limit for its output, which may be 32,768
times as large."""

_MAX_XZ_BYTES = 2**28
"""Memory that a decoder of xz may take; `xz -9` needs 65 MB. The others take less than that."""

_HEAD_INPUT_BYTES = 2**16, 2**20
"""Bytes that are read to decompress the first ones, and the limit if these are not enough: nothing
of a block of bzip2, which may have 900 kB, can be decompressed before its end."""

MAX_MAGIC_BYTES = 6


class _Decoder(Protocol):
    """Decodes one stream: a gzip member, a Zstandard frame."""

    is_complete: bool
    """Whether the end of the stream has been decoded."""
    unused: bytes
    """What follows the end of the stream."""

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield what is decoded of the next bytes. Raises any error if they are damaged."""
        ...


@final
class _GzipDecoder:
    def __init__(self) -> None:
        self.is_complete, self.unused = False, b""
        self._decoder = zlib.decompressobj(wbits=31)

    def decode(self, data: bytes) -> Iterator[bytes]:
        decoder = self._decoder
        output = b""
        while (data or len(output) == _OUTPUT_BYTES) and not decoder.eof:
            output = decoder.decompress(data, _OUTPUT_BYTES)
            data = decoder.unconsumed_tail
            yield output
        self.is_complete, self.unused = decoder.eof, decoder.unused_data


@final
class _BlockDecoder:
    """Decodes bzip2 and xz, whose modules have the same interface."""

    def __init__(self, decoder: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> None:
        self.is_complete, self.unused = False, b""
        self._decoder = decoder

    def decode(self, data: bytes) -> Iterator[bytes]:
        decoder = self._decoder
        yield decoder.decompress(data, _OUTPUT_BYTES)
        while not decoder.eof and not decoder.needs_input:
            yield decoder.decompress(b"", _OUTPUT_BYTES)
        self.is_complete, self.unused = decoder.eof, decoder.unused_data


@final
class _ZstdDecoder:
    def __init__(self) -> None:
        self.is_complete, self.unused = False, b""
        zstandard = load_extra("zstandard", extra="zstd", wanted_by="Reading Zstandard files")
        self._decoder: Any = zstandard.ZstdDecompressor().decompressobj()

    def decode(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_INPUT_BYTES):
            stop = start + _ZSTD_INPUT_BYTES
            yield self._decoder.decompress(data[start:stop])
            if self._decoder.eof:
                self.is_complete, self.unused = True, self._decoder.unused_data + data[stop:]
                return


@final
@dataclass(frozen=True, kw_only=True)
class Compression:
    """A kind of compressed file: one stream, or several that follow one another."""

    name: str
    magics: tuple[bytes, ...]
    """How a stream begins."""
    suffixes: tuple[str, ...]
    make_decoder: Callable[[], _Decoder]
    allows_zeros: bool = False
    """Whether zero bytes may follow a stream."""


COMPRESSIONS = (
    Compression(
        name="gzip",
        magics=(b"\x1f\x8b\x08",),
        suffixes=(".gz",),
        make_decoder=_GzipDecoder,
        allows_zeros=True,
    ),
    Compression(
        name="bzip2",
        magics=(b"BZh",),
        suffixes=(".bz2",),
        make_decoder=lambda: _BlockDecoder(bz2.BZ2Decompressor()),
    ),
    Compression(
        name="xz",
        magics=(b"\xfd7zXZ\x00",),
        suffixes=(".xz",),
        make_decoder=lambda: _BlockDecoder(
            lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_XZ_BYTES)
        ),
        allows_zeros=True,
    ),
    Compression(
        name="Zstandard",
        magics=(b"\x28\xb5\x2f\xfd",),
        suffixes=(".zst", ".zstd"),
        make_decoder=_ZstdDecoder,
    ),
)


def find_compression(head: bytes) -> Compression | None:
    """Return how a file is compressed, from its first bytes; `None` if it is not."""
    return next((kind for kind in COMPRESSIONS if head.startswith(kind.magics)), None)


def open_decompressed(ref: FileRef) -> File:
    """Open a file, decompressed if it is compressed.

    In a store, only a file with the suffix of a compression is looked at: another request for each
    of many files would be slow.

    Args:
        ref: The file as it is stored.
    """
    file = open_file(ref)
    if not ref.is_local and not any(ref.name.endswith(kind.suffixes) for kind in COMPRESSIONS):
        return file
    compression = find_compression(file.read_one(0, min(MAX_MAGIC_BYTES, ref.size)))
    return file if compression is None else DecompressedFile(file, compression)


def read_decompressed_head(file: File, compression: Compression, num_bytes: int) -> bytes:
    """Return the first decompressed bytes of a file, or fewer if they do not decompress well."""
    head = b""
    try:
        for output in _decode(_head_chunks(file), compression, file):
            head += output
            if len(head) >= num_bytes:
                break
    except CorruptFileError:
        pass  # cut off here, or damaged, which is an error when the file is read
    return head[:num_bytes]


def _head_chunks(file: File) -> Iterator[bytes]:
    """Yield the first bytes of a file; later ones are read only if they are requested."""
    start = 0
    for limit in _HEAD_INPUT_BYTES:
        stop = min(limit, file.ref.size)
        if stop > start:
            yield file.read_one(start, stop)
        start = stop


@final
class DecompressedFile(File):
    """A compressed file, read through its decompressed copy in the cache folder.

    Its ref has the path of the compressed file and the size of the copy.
    """

    def __init__(self, file: File, compression: Compression) -> None:
        self._compressed = file
        version = f"decompressed {file.ref.version} {identity_of(file)}"
        origin = replace(file.ref, version=version)

        def write(append: Callable[[bytes], None]) -> None:
            name = f"Decompressing {file.ref.name}"
            with progress(name, total=file.ref.size, unit="B") as advance:
                for output in _decode(_count(file.chunks(), advance), compression, file):
                    append(output)

        self._copy = LocalFile(find_local(str(write_once(origin, write)), file.ref.storage))
        self._ref = replace(origin, size=self._copy.ref.size)

    @property
    def ref(self) -> FileRef:
        return self._ref

    def read(self, starts: Sequence[int] | Indices, stops: Sequence[int] | Indices) -> list[bytes]:
        data = self._copy.read(starts, stops)
        self._check_origin()
        return data

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        for chunk in self._copy.chunks(start, stop):
            self._check_origin()
            yield chunk

    def local_path(self) -> Path:
        return self._copy.local_path()

    def check_unchanged(self) -> None:
        self._copy.check_unchanged()
        self._check_origin()

    def _check_origin(self) -> None:
        if self._ref.is_local:  # a file in a store is checked when it is opened
            self._compressed.check_unchanged()


def _count(chunks: Iterable[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        advance(len(chunk))


def _split_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        for start in range(0, len(chunk), _INPUT_BYTES):
            yield chunk[start : start + _INPUT_BYTES]


def _decode(chunks: Iterable[bytes], compression: Compression, file: File) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file. The last stream must be complete."""
    decoder: _Decoder | None = None
    offset = 0
    for data in _split_chunks(chunks):
        num_bytes = len(data)
        while data:
            if decoder is None:
                if compression.allows_zeros and not data.strip(b"\0"):
                    break
                decoder = compression.make_decoder()
            try:
                yield from decoder.decode(data)
            except Exception as error:  # each library raises its own
                raise _damaged(str(error), compression, file, offset) from None
            data = b""
            if decoder.is_complete:
                data, decoder = decoder.unused, None
                if compression.allows_zeros:
                    data = data.lstrip(b"\0")
        offset += num_bytes
    if decoder is not None:
        raise _damaged("it ends inside a stream", compression, file, offset)


def _damaged(reason: str, compression: Compression, file: File, offset: int) -> CorruptFileError:
    return CorruptFileError(
        f"The {compression.name} file is damaged or truncated ({reason}). Copy it again.",
        path=file.ref.path,
        offset=offset,
    )
