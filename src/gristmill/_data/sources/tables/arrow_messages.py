"""Find the messages of an Arrow IPC file and the number of rows in them.

A stream is a sequence of messages: a schema, then dictionaries and record batches. A file is a
stream between two magic strings, with a footer that lists where the messages are. A message is
metadata, which is a flatbuffer, and a body. pyarrow can count the rows of a batch only by reading
and decompressing all of it. Therefore this module reads the few fields it needs itself, as
Message.fbs, File.fbs and Schema.fbs of the Arrow format define them:

    Message      0 version  1 type of header  2 header  3 bytes of the body
    RecordBatch  0 rows  1 nodes: (rows, nulls) of each array  2 buffers  3 compression
    Footer       0 version  1 schema  2 dictionaries  3 record batches: (offset, bytes of
                 metadata, bytes of body) of each message
"""

import struct
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from gristmill._io.file import File
from gristmill.errors import CorruptFileError, FormatError

_MAGIC = b"ARROW1"
_CONTINUATION = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_WINDOW_BYTES = 64 * 1024
"""Bytes to read at a time for metadata, which mostly take a few hundred."""
_MAX_GAP_BYTES = 64
"""Between two messages there may be padding, or the mark of an end, but not another message."""


class Messages(NamedTuple):
    """The messages of one file, each as the offsets of its start and stop."""

    schema: tuple[int, int]
    dictionaries: list[tuple[int, int]]
    batches: list[tuple[int, int]]
    counts: list[int]
    """The rows of each batch."""
    nulls: NDArray[np.bool_]
    """For each batch and each of its arrays, including nested ones, whether it contains a null."""
    is_compressed: bool
    is_stream: bool
    """In a stream, a dictionary may replace an earlier one."""


def find_messages(file: File) -> Messages:
    """Find the messages of a file or stream. Only their metadata are read."""
    magic = file.read_one(0, min(8, file.ref.size))
    if magic.startswith(b"FEA1"):
        raise FormatError(
            "The file is a Feather file of version 1. Write it again in version 2, the default of "
            "pyarrow.",
            path=file.ref.path,
        )
    try:
        return _from_footer(file) if magic.startswith(_MAGIC) else _from_stream(file, magic)
    except (struct.error, OverflowError) as error:  # numbers that are not valid
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
    schema_stop, _ = _MessageReader(file).read(8)
    _check_coverage(schema_stop, [*dictionaries, *batches], size - 10 - length)
    messages = [_parse_metadata(data) for data in metadata]
    if any(message.number(1, "B") != _BATCH for message in messages):
        raise _damaged(file)
    return _as_messages(
        (8, schema_stop),
        [(start, start + length + body) for start, length, body in dictionaries],
        [(start, start + length + body) for start, length, body in batches],
        [message.table(2) for message in messages],
        is_stream=False,
    )


def _check_coverage(start: int, blocks: list[tuple[int, ...]], stop: int) -> None:
    """Raise unless the messages that a footer lists fill the file between the schema and itself.

    A message that the footer does not list would be lost silently.
    """
    for begin, num_metadata_bytes, num_body_bytes in sorted(blocks):
        if not 0 <= begin - start < _MAX_GAP_BYTES:
            raise struct.error
        start = begin + num_metadata_bytes + num_body_bytes
    if not 0 <= stop - start < _MAX_GAP_BYTES:
        raise struct.error


def _from_stream(file: File, magic: bytes) -> Messages:
    reader = _MessageReader(file)
    found: dict[int, list[tuple[int, int]]] = {_SCHEMA: [], _DICTIONARY: [], _BATCH: []}
    headers: list[_Table] = []
    offset = 0
    try:
        while offset < file.ref.size:
            stop, message = reader.read(offset)
            if message is None:  # the end of the stream
                if stop != file.ref.size:
                    raise struct.error
                break
            header_type = message.number(1, "B")
            found[header_type].append((offset, stop))
            if header_type == _BATCH:
                headers.append(message.table(2))
            offset = stop
    except (struct.error, KeyError):
        if found[_SCHEMA]:
            raise _damaged(file) from None
    if not found[_SCHEMA]:
        raise FormatError(
            f"The file is not an Arrow file: it begins with {magic!r}, which is neither the start "
            "of an Arrow file nor of an Arrow stream.",
            path=file.ref.path,
        )
    if len(found[_SCHEMA]) > 1:
        raise _damaged(file)
    return _as_messages(
        found[_SCHEMA][0], found[_DICTIONARY], found[_BATCH], headers, is_stream=True
    )


def _as_messages(
    schema: tuple[int, int],
    dictionaries: list[tuple[int, int]],
    batches: list[tuple[int, int]],
    headers: "list[_Table]",
    *,
    is_stream: bool,
) -> Messages:
    """Read counts and nulls from the headers of the batches."""
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
class _MessageReader:
    """Reads the metadata of one message after another, without their bodies."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._start = 0
        self._window = b""

    def read(self, offset: int) -> "tuple[int, _Table | None]":
        """Return where the message at `offset` stops, and its metadata; `None` at the end."""
        prefix = self._read_bytes(offset, 8)
        skipped = 8 if prefix.startswith(_CONTINUATION) else 4  # 4: before Arrow 0.15
        (length,) = struct.unpack_from("<i", prefix, skipped - 4)
        if length == 0:
            return offset + skipped, None
        message = _parse_metadata(self._read_bytes(offset, skipped + length))
        stop = offset + skipped + length + message.number(3, "q")
        if length < 0 or not offset < stop <= self._file.ref.size:
            raise struct.error
        return stop, message

    def _read_bytes(self, offset: int, num_bytes: int) -> bytes:
        within = offset - self._start
        if not 0 <= within <= len(self._window) - num_bytes:
            stop = min(offset + max(num_bytes, _WINDOW_BYTES), self._file.ref.size)
            self._window = self._file.read_one(offset, stop)
            self._start, within = offset, 0
        return self._window[within : within + num_bytes]


def _parse_metadata(data: bytes) -> "_Table":
    return _Table.root(data[8 if data.startswith(_CONTINUATION) else 4 :])


class _Table(NamedTuple):
    """A table of a flatbuffer: numbered fields, each of which may be absent."""

    data: bytes
    offset: int

    @staticmethod
    def root(data: bytes) -> "_Table":
        return _Table(data, _unpack("I", data, 0))

    def has(self, field: int) -> bool:
        return self._find(field) != 0

    def number(self, field: int, code: str) -> int:
        """Return an integer field of the `struct` format `code`, 0 if it is absent."""
        offset = self._find(field)
        return _unpack(code, self.data, offset) if offset else 0

    def table(self, field: int) -> "_Table":
        offset = self._find(field)
        return _Table(self.data, offset + _unpack("I", self.data, offset))

    def structs(self, field: int, layout: str) -> list[tuple[int, ...]]:
        """Return a vector of structs of the `struct` format `layout`, empty if it is absent."""
        offset = self._find(field)
        if not offset:
            return []
        offset += _unpack("I", self.data, offset)
        stop = offset + 4 + _unpack("I", self.data, offset) * struct.calcsize(layout)
        if stop > len(self.data):
            raise struct.error
        return list(struct.iter_unpack(layout, self.data[offset + 4 : stop]))

    def blocks(self, field: int) -> list[tuple[int, ...]]:
        """Return the offset, the bytes of metadata and the bytes of body of each message."""
        return self.structs(field, "<qi4xq")

    def _find(self, field: int) -> int:
        """Return the offset of a field, 0 if it is absent."""
        fields = self.offset - _unpack("i", self.data, self.offset)
        if fields < 0:
            raise struct.error
        entry = 4 + 2 * field
        if entry >= _unpack("H", self.data, fields):
            return 0
        offset = _unpack("H", self.data, fields + entry)
        return self.offset + offset if offset else 0


def _unpack(code: str, data: bytes, offset: int) -> int:
    return struct.unpack_from(f"<{code}", data, offset)[0]


def _damaged(file: File) -> CorruptFileError:
    return CorruptFileError(
        "The Arrow file is damaged or truncated. Copy or write it again.", path=file.ref.path
    )
