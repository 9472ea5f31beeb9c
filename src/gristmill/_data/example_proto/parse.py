"""Parsing of one `tf.train.Example` message.

    Example    1: Features
    Features   1: entry, repeated          entry      1: key   2: Feature
    Feature    1: BytesList   2: FloatList   3: Int64List      the last one counts
    ...List    1: value, repeated; numbers one by one or packed into one field

A field is a tag (8 x number + wire type) and its content. As in protobuf, unknown fields are
skipped, repeated parts of a message are merged, and the last entry with a key counts.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gristmill._data.example_proto.varint import join_varints
from gristmill.errors import FormatError

Values: TypeAlias = list[bytes] | NDArray[np.float32] | NDArray[np.int64]

_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
FIRST, SECOND, THIRD = 0x0A, 0x12, 0x1A  # tags of fields 1, 2 and 3 with a length
_ONE_INT, _ONE_FLOAT = 0x08, 0x0D  # tags of field 1, not packed
_MAX_LOOP_BYTES = 128
"""Up to this size a Python loop takes less time than the NumPy calls."""

_TOO_LONG = "a number is longer than 10 bytes"
_MAX_DEPTH = 100  # nested groups, as in protobuf


def parse_example(data: bytes) -> dict[str, Values]:
    r"""Return the features of a serialised `tf.train.Example`: bytes as lists, numbers as arrays.

    A feature without a kind and without values is an empty list.

    >>> parse_example(b"\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x07")
    {'label': array([7])}
    """
    data = bytes(data)
    features: dict[str, Values] = {}
    try:
        for tag, start, stop in _fields(data, 0, len(data)):
            if tag == FIRST:
                for inner, begin, end in _fields(data, start, stop):
                    if inner == FIRST:
                        key, values = _entry(data, begin, end)
                        features[key] = values
    except IndexError:
        raise _not_an_example("they end inside a field", len(data)) from None
    return features


def _entry(data: bytes, at: int, end: int) -> tuple[str, Values]:
    key = ""
    kind, lists = 0, list[tuple[int, int]]()
    for tag, start, stop in _fields(data, at, end):
        if tag == FIRST:
            try:
                key = data[start:stop].decode()
            except UnicodeDecodeError:
                raise _not_an_example("a key is not UTF-8", start) from None
        elif tag == SECOND:
            for inner, begin, close in _fields(data, start, stop):
                if inner in (FIRST, SECOND, THIRD):
                    if inner != kind:
                        kind, lists = inner, []
                    lists.append((begin, close))
    found = [field for begin, close in lists for field in _fields(data, begin, close)]
    if kind == SECOND:
        return key, _floats(data, found)
    if kind == THIRD:
        return key, _ints(data, found)
    return key, [data[start:stop] for tag, start, stop in found if tag == FIRST]


def _fields(data: bytes, at: int, end: int) -> list[tuple[int, int, int]]:
    """Return the tag, start and stop of each field; raise `IndexError` past the end of the data."""
    fields: list[tuple[int, int, int]] = []
    while at < end:
        tag, length = data[at], data[at + 1]
        if (
            tag & 0x87 == _LENGTH and tag > 7 and length < 128
        ):  # the common case, without a function call
            start, at = at + 2, at + 2 + length
        else:
            tag, at = _varint(data, at)
            start, at = _content(data, tag, at)
        if at > end:
            raise _not_an_example("a field is longer than its message", start)
        fields.append((tag, start, at))
    return fields


def _content(data: bytes, tag: int, at: int) -> tuple[int, int]:
    """Return start and stop of the content of a field whose tag ends at `at`."""
    wire = tag & 7
    if not 8 <= tag < 2**32:
        raise _not_an_example("a field number is out of range", at)
    if wire == _LENGTH:
        length, at = _varint(data, at)
        return at, at + length
    if wire == _VARINT:
        return at, _varint(data, at)[1]
    if wire == _FIXED32:
        return at, at + 4
    if wire == _FIXED64:
        return at, at + 8
    if wire == _GROUP:
        return at, _after_group(data, tag, at)
    raise _not_an_example("a field has an unknown wire type", at)


def _after_group(data: bytes, tag: int, at: int) -> int:
    """Return the end of a group, protobuf's old form of nesting."""
    opened = [tag]
    while opened:
        tag, at = _varint(data, at)
        if tag & 7 == _GROUP_END:
            if tag != opened.pop() + 1:
                raise _not_an_example("a group ends without a start", at)
        elif tag & 7 == _GROUP and 8 <= tag < 2**32:
            opened.append(tag)
            if len(opened) > _MAX_DEPTH:
                raise _not_an_example(f"more than {_MAX_DEPTH} groups are nested", at)
        else:
            at = _content(data, tag, at)[1]
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of 7 bits per byte, lowest first, and its end.

    Bits above 64 are dropped, as in protobuf.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (2**64 - 1), at
        shift += 7
        if shift > 63:
            raise _not_an_example(_TOO_LONG, at)


def _floats(data: bytes, fields: list[tuple[int, int, int]]) -> NDArray[np.float32]:
    chunks: list[bytes] = []
    for tag, start, stop in fields:
        if tag in (FIRST, _ONE_FLOAT):
            if (stop - start) % 4:
                raise _not_an_example(f"a list of floats takes {stop - start} bytes", start)
            chunks.append(data[start:stop])
    # From a bytearray, so that the array is writable.
    return np.frombuffer(bytearray().join(chunks), "<f4").astype(np.float32, copy=False)


def _ints(data: bytes, fields: list[tuple[int, int, int]]) -> NDArray[np.int64]:
    chunks: list[bytes] = []
    for tag, start, stop in fields:
        if tag in (FIRST, _ONE_INT):
            if stop > start and data[stop - 1] >= 128:
                raise _not_an_example("a list of integers ends inside a number", stop)
            chunks.append(data[start:stop])
    raw = b"".join(chunks)
    try:
        return _few_ints(raw) if len(raw) <= _MAX_LOOP_BYTES else _many_ints(raw)
    except FormatError:
        raise _not_an_example(_TOO_LONG, fields[0][1]) from None


def _few_ints(raw: bytes) -> NDArray[np.int64]:
    values: list[int] = []
    at = 0
    while at < len(raw):
        value = raw[at]
        if value < 128:
            at += 1
        else:
            value, at = _varint(raw, at)
        values.append(value)
    return np.array(values, np.uint64).view(np.int64)


def _many_ints(raw: bytes) -> NDArray[np.int64]:
    digits = np.frombuffer(raw, np.uint8)
    values = join_varints(digits, digits < 128)
    if values is None:
        raise _not_an_example(_TOO_LONG, 0)
    return values


def _not_an_example(fact: str, offset: int) -> FormatError:
    return FormatError(
        f"These bytes are not a `tf.train.Example`: {fact}. Check the contents of the records.",
        offset=offset,
    )
