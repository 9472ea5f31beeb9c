"""Decompress the chunks of arrays up to a limit: a few bytes can expand to any size."""

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

from gristmill._base.extras import load_extra

_MAX_LZMA_BYTES = 2**28
"""Memory that a decoder of lzma may take; the strongest level needs 65 MB."""

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPED = range(0x184D2A50, 0x184D2A60)
"""How frames begin that hold no data."""
_ZSTD_BLOCK_BYTES = 2**17
"""What a block of Zstandard may hold."""
_ZSTD_ROUNDING_BYTES = 2**20
"""Added to the limit: frames that do not state their size are counted in whole blocks."""

Decode: TypeAlias = Callable[[bytes], bytes]


class _Decoder(Protocol):
    """Decodes one stream: an object of zlib, bz2 or lzma."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def find_bounded_decode(settings: Mapping[str, Any], max_bytes: int) -> Decode | None:
    """Return a function that decodes a chunk, and raises `ValueError` if it is too large.

    >>> find_bounded_decode({"id": "zlib"}, 5)(zlib.compress(b"abc"))
    b'abc'

    Args:
        settings: The name of the codec, as `"id"`, and its settings, as numcodecs has them.
        max_bytes: What a decoded chunk may have.

    Returns:
        The function; `None` for codecs that do not compress.
    """
    name = settings["id"]
    streams: dict[str, Callable[[], _Decoder]] = {
        "zlib": zlib.decompressobj,
        "gzip": partial(zlib.decompressobj, wbits=31),
        "bz2": bz2.BZ2Decompressor,
        "lzma": partial(_lzma_decoder, settings),
    }
    if name in streams:
        return partial(
            _decode_streams, make_decoder=streams[name], max_bytes=max_bytes, is_one=name == "zlib"
        )
    sizes = {"zstd": _zstd_size, "blosc": _blosc_size, "lz4": _lz4_size}
    if name not in sizes:
        return None
    numcodecs: Any = load_extra("numcodecs", extra="zarr", wanted_by="`ZarrSource`")
    decode = numcodecs.get_codec({"id": name}).decode
    return partial(_decode_sized, size_of=sizes[name], decode=decode, max_bytes=max_bytes)


def _decode_streams(
    data: bytes, *, make_decoder: Callable[[], _Decoder], max_bytes: int, is_one: bool
) -> bytes:
    """Decompress streams that follow one another; only the first if `is_one`."""
    found: list[bytes] = []
    left = max_bytes + 1
    while True:
        decoder = make_decoder()
        found.append(decoder.decompress(data, left))
        left -= len(found[-1])
        if not left:
            raise _too_large(max_bytes)
        if not decoder.eof:
            raise ValueError("the chunk ends inside a stream")
        data = decoder.unused_data.lstrip(b"\0")
        if is_one or not data:
            return b"".join(found)


def _lzma_decoder(settings: Mapping[str, Any]) -> _Decoder:
    form = settings.get("format", lzma.FORMAT_XZ)
    limit = None if form == lzma.FORMAT_RAW else _MAX_LZMA_BYTES
    return lzma.LZMADecompressor(form, limit, settings.get("filters"))


def _decode_sized(
    data: bytes, *, size_of: Callable[[bytes], int], decode: Decode, max_bytes: int
) -> bytes:
    """Decode a chunk after a check of the size that it states."""
    try:
        size = size_of(data)
    except IndexError:
        raise ValueError("the chunk is truncated") from None
    if size > max_bytes:
        raise _too_large(max_bytes)
    return decode(data)


def _blosc_size(data: bytes) -> int:
    """Return the size that a chunk of Blosc announces, after a check of its length.

    numcodecs does not check the length, and would decompress the memory behind a truncated chunk.
    """
    if len(data) < 16 or int.from_bytes(data[12:16], "little") > len(data):
        raise ValueError("the chunk is truncated")
    return int.from_bytes(data[4:8], "little")


def _lz4_size(data: bytes) -> int:
    return int.from_bytes(data[:4], "little")


def _zstd_size(data: bytes) -> int:
    """Return the size of frames of Zstandard, or more if they do not state it."""
    at = size = 0
    while at < len(data):
        magic = int.from_bytes(data[at : at + 4], "little")
        if magic in _ZSTD_SKIPPED:
            at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
            continue
        if magic != _ZSTD_MAGIC:
            raise ValueError("the chunk is not a frame of Zstandard")
        flags = data[at + 4]
        is_single = flags >> 5 & 1
        num_id, num_size = (0, 1, 2, 4)[flags & 3], (is_single, 2, 4, 8)[flags >> 6]
        at += 6 - is_single + num_id
        stated = int.from_bytes(data[at : at + num_size], "little") + 256 * (num_size == 2)
        at, num_blocks = _skip_blocks(data, at + num_size)
        at += 4 * (flags >> 2 & 1)
        size += (
            stated if num_size else max(0, num_blocks * _ZSTD_BLOCK_BYTES - _ZSTD_ROUNDING_BYTES)
        )
    return size


def _skip_blocks(data: bytes, at: int) -> tuple[int, int]:
    """Return where the blocks of a frame end, and their number."""
    num_blocks, is_last = 0, 0
    while not is_last:
        head = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        is_last, is_repeated = head & 1, head >> 1 & 3 == 1
        at += 3 + (1 if is_repeated else head >> 3)
        num_blocks += 1
    return at, num_blocks


def _too_large(max_bytes: int) -> ValueError:
    return ValueError(f"a chunk holds more than {max_bytes:,} bytes, which it cannot have")
