"""Where the messages of an Arrow IPC file are, and how many rows they hold.

A stream is messages one after the other: a schema, then dictionaries and record batches. A file
is a stream between two magic words, with a footer that says where the messages are. A message is
metadata, which is a flatbuffer, and a body. pyarrow counts the rows of a batch only by reading,
and decompressing, all of it; so the few fields needed are read here, as Message.fbs, File.fbs and
Schema.fbs of the Arrow format lay them down:

    Message      0 version  1 kind of header  2 header  3 bytes of the body
    RecordBatch  0 rows  1 nodes: (rows, nulls) of each array  2 buffers  3 compression
    Footer       0 version  1 schema  2 dictionaries  3 record batches: (offset, bytes of
                 metadata, bytes of body) of each message
"""

import struct
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import CorruptFileError, FormatError
from gristmill.files import File

_MAGIC = b"ARROW1"
_GOES_ON = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_WINDOW = 64 * 1024
"""Read at a time while hopping from message to message: metadata are mostly a few hundred bytes."""


class Messages(NamedTuple):
    """The messages of one file, each from where it starts to where it stops."""

    schema: tuple[int, int]
    dictionaries: list[tuple[int, int]]
    batches: list[tuple[int, int]]
    counts: list[int]
    """The rows of each batch."""
    nulls: NDArray[np.bool_]
    """For each batch and each of its arrays, nested ones included, whether it holds a null."""
    is_compressed: bool
    is_stream: bool
    """So that a dictionary may replace one that came before."""


def find_messages(file: File) -> Messages:
    """Find the messages of a file or stream; reads nothing but their metadata."""
    magic = file.read_one(0, min(8, file.ref.size))
    if magic.startswith(b"FEA1"):
        raise FormatError(
            "It is a Feather file of version 1. Write it anew in version 2, which is pyarrow's "
            "default.",
            path=file.ref.path,
        )
    try:
        return _from_footer(file) if magic.startswith(_MAGIC) else _from_stream(file, magic)
    except (struct.error, OverflowError) as error:  # numbers that make no sense
        raise _damaged(file) from error


def _from_footer(file: File) -> Messages:
    size = file.ref.size
    tail = file.read_one(max(0, size - 10), size)
    length = int.from_bytes(tail[:4], "little")
    if not tail.endswith(_MAGIC) or length > size - 18:
        raise _damaged(file)
    footer = _Table.root(file.read_one(size - 10 - length, size - 10))
    dictionaries, batches = footer.blocks(2), footer.blocks(3)
    if any(min(block) < 0 or sum(block) > size for block in [*dictionaries, *batches]):
        raise _damaged(file)
    metadata = file.read(
        [start for start, _, _ in batches], [start + length for start, length, _ in batches]
    )
    schema, _ = _Hops(file).message(8)
    return _told(
        (8, schema),
        [(start, start + length + body) for start, length, body in dictionaries],
        [(start, start + length + body) for start, length, body in batches],
        [_metadata(data).table(2) for data in metadata],
        is_stream=False,
    )


def _from_stream(file: File, magic: bytes) -> Messages:
    hops = _Hops(file)
    found: dict[int, list[tuple[int, int]]] = {_SCHEMA: [], _DICTIONARY: [], _BATCH: []}
    headers: list[_Table] = []
    position = 0
    try:
        while position < file.ref.size:
            stop, message = hops.message(position)
            if message is None:  # the end of the stream
                break
            kind = message.number(1, "B")
            found[kind].append((position, stop))
            if kind == _BATCH:
                headers.append(message.table(2))
            position = stop
    except (struct.error, KeyError):
        if found[_SCHEMA]:
            raise _damaged(file) from None
    if not found[_SCHEMA]:
        raise FormatError(
            f"It is not an Arrow file: it begins with {magic!r}, which is neither the start of an "
            "Arrow file nor of an Arrow stream.",
            path=file.ref.path,
        )
    return _told(found[_SCHEMA][0], found[_DICTIONARY], found[_BATCH], headers, is_stream=True)


def _told(
    schema: tuple[int, int],
    dictionaries: list[tuple[int, int]],
    batches: list[tuple[int, int]],
    headers: "list[_Table]",
    *,
    is_stream: bool,
) -> Messages:
    counts = [header.number(0, "q") for header in headers]
    nodes = [header.structs(1, "<qq") for header in headers]
    if any(
        len(arrays) != len(nodes[0]) or (arrays and arrays[0][0] != count) or count < 0
        for arrays, count in zip(nodes, counts, strict=True)
    ):
        raise struct.error
    return Messages(
        schema,
        dictionaries,
        batches,
        counts,
        np.array([[num_nulls != 0 for _, num_nulls in arrays] for arrays in nodes], dtype=bool),
        any(header.has(3) for header in headers),
        is_stream,
    )


@final
class _Hops:
    """A way through a file from message to message, past their bodies."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._start = 0
        self._window = b""

    def message(self, position: int) -> "tuple[int, _Table | None]":
        """Give where the message at a position stops, and what it says; None at the end."""
        prefix = self._bytes(position, 8)
        skipped = 8 if prefix.startswith(_GOES_ON) else 4  # 4: before version 0.15 of Arrow
        (length,) = struct.unpack_from("<i", prefix, skipped - 4)
        if length == 0:
            return position + skipped, None
        message = _metadata(self._bytes(position, skipped + length))
        stop = position + skipped + length + message.number(3, "q")
        if length < 0 or not position < stop <= self._file.ref.size:
            raise struct.error
        return stop, message

    def _bytes(self, position: int, count: int) -> bytes:
        within = position - self._start
        if not 0 <= within <= len(self._window) - count:
            stop = min(position + max(count, _WINDOW), self._file.ref.size)
            self._window = self._file.read_one(position, stop)
            self._start, within = position, 0
        return self._window[within : within + count]


def _metadata(data: bytes) -> "_Table":
    return _Table.root(data[8 if data.startswith(_GOES_ON) else 4 :])


class _Table(NamedTuple):
    """A table of a flatbuffer: fields by number, of which any may be left out."""

    data: bytes
    place: int

    @staticmethod
    def root(data: bytes) -> "_Table":
        return _Table(data, _unpack("I", data, 0))

    def has(self, field: int) -> bool:
        return self._at(field) != 0

    def number(self, field: int, kind: str) -> int:
        place = self._at(field)
        return _unpack(kind, self.data, place) if place else 0

    def table(self, field: int) -> "_Table":
        place = self._at(field)
        return _Table(self.data, place + _unpack("I", self.data, place))

    def structs(self, field: int, layout: str) -> list[tuple[int, ...]]:
        place = self._at(field)
        if not place:
            return []
        place += _unpack("I", self.data, place)
        stop = place + 4 + _unpack("I", self.data, place) * struct.calcsize(layout)
        if stop > len(self.data):
            raise struct.error
        return list(struct.iter_unpack(layout, self.data[place + 4 : stop]))

    def blocks(self, field: int) -> list[tuple[int, ...]]:
        return self.structs(field, "<qi4xq")

    def _at(self, field: int) -> int:
        """Give where a field is, 0 if it is left out."""
        fields = self.place - _unpack("i", self.data, self.place)
        if fields < 0:
            raise struct.error
        entry = 4 + 2 * field
        if entry >= _unpack("H", self.data, fields):
            return 0
        offset = _unpack("H", self.data, fields + entry)
        return self.place + offset if offset else 0


def _unpack(kind: str, data: bytes, place: int) -> int:
    return struct.unpack_from(f"<{kind}", data, place)[0]


def _damaged(file: File) -> CorruptFileError:
    return CorruptFileError(
        "The Arrow file is damaged or cut short. Copy it anew, or write it anew.",
        path=file.ref.path,
    )
