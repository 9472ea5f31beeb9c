"""`tf.train.Example` out of bytes, without TensorFlow or protobuf.

    Example    1: Features
    Features   1: entry, repeated          entry      1: key   2: Feature
    Feature    1: BytesList   2: FloatList   3: Int64List      the last one there is counts
    ...List    1: value, repeated; numbers one by one or packed into one field

A field is a tag (8 x number + wire type) and its content. As protobuf has it, unknown fields are
skipped, parts of one message are merged, and of two entries with one key the last one counts.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gristmill._example._varint import join_varints
from gristmill.errors import FormatError

Values: TypeAlias = list[bytes] | NDArray[np.float32] | NDArray[np.int64]

_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
FIRST, SECOND, THIRD = 0x0A, 0x12, 0x1A  # tags of fields 1, 2 and 3 that tell their length
_ONE_INT, _ONE_FLOAT = 0x08, 0x0D  # tags of field 1, not packed
_FEW = 128  # bytes
_TOO_LONG = "a number is longer than 10 bytes"
_DEEPEST = 100  # groups within each other, as in protobuf


def parse_example(data: bytes) -> dict[str, Values]:
    r"""Give the features of a serialised `tf.train.Example`: bytes as lists, numbers as arrays.

    A feature that says neither what it holds nor any value is an empty list.

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
        raise _no_example("they end inside a field", len(data)) from None
    return features


def _entry(data: bytes, at: int, end: int) -> tuple[str, Values]:
    key = ""
    kind, lists = 0, list[tuple[int, int]]()
    for tag, start, stop in _fields(data, at, end):
        if tag == FIRST:
            try:
                key = data[start:stop].decode()
            except UnicodeDecodeError:
                raise _no_example("a key is not UTF-8", start) from None
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
    """Give the tag of each field and where its content is; beyond the data is an `IndexError`."""
    fields: list[tuple[int, int, int]] = []
    while at < end:
        tag, length = data[at], data[at + 1]
        if tag & 0x87 == _LENGTH and tag > 7 and length < 128:  # most are: nobody need be called
            start, at = at + 2, at + 2 + length
        else:
            tag, at = _varint(data, at)
            start, at = _content(data, tag, at)
        if at > end:
            raise _no_example("a field is longer than what it is part of", start)
        fields.append((tag, start, at))
    return fields


def _content(data: bytes, tag: int, at: int) -> tuple[int, int]:
    """Give where the content of a field is, whose tag ends here."""
    wire = tag & 7
    if not 8 <= tag < 2**32:
        raise _no_example("the number of a field is out of bounds", at)
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
    raise _no_example("a field is of an unknown wire type", at)


def _after_group(data: bytes, tag: int, at: int) -> int:
    """Skip a group: an old way to nest, up to a tag that ends it."""
    opened = [tag]
    while opened:
        tag, at = _varint(data, at)
        if tag & 7 == _GROUP_END:
            if tag != opened.pop() + 1:
                raise _no_example("a group ends that did not begin", at)
        elif tag & 7 == _GROUP and 8 <= tag < 2**32:
            opened.append(tag)
            if len(opened) > _DEEPEST:
                raise _no_example(f"more than {_DEEPEST} groups are within each other", at)
        else:
            at = _content(data, tag, at)[1]
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Give a number of 7 bits a byte, the lowest first, and where it ends.

    What is above 64 bits does not count, as in protobuf.
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
            raise _no_example(_TOO_LONG, at)


def _floats(data: bytes, fields: list[tuple[int, int, int]]) -> NDArray[np.float32]:
    pieces: list[bytes] = []
    for tag, start, stop in fields:
        if tag in (FIRST, _ONE_FLOAT):
            if (stop - start) % 4:
                raise _no_example(f"a list of floats takes {stop - start} bytes", start)
            pieces.append(data[start:stop])
    # Out of a bytearray it can be written to.
    return np.frombuffer(bytearray().join(pieces), "<f4").astype(np.float32, copy=False)


def _ints(data: bytes, fields: list[tuple[int, int, int]]) -> NDArray[np.int64]:
    pieces: list[bytes] = []
    for tag, start, stop in fields:
        if tag in (FIRST, _ONE_INT):
            if stop > start and data[stop - 1] >= 128:
                raise _no_example("a list of integers ends inside a number", stop)
            pieces.append(data[start:stop])
    raw = b"".join(pieces)
    # Below some bytes the loop takes less time than the calls.
    try:
        return _few_ints(raw) if len(raw) <= _FEW else _many_ints(raw)
    except FormatError:
        raise _no_example(_TOO_LONG, fields[0][1]) from None


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
        raise _no_example(_TOO_LONG, 0)
    return values


def _no_example(fact: str, offset: int) -> FormatError:
    return FormatError(
        f"These bytes are not a `tf.train.Example`: {fact}. Check what the records hold.",
        offset=offset,
    )
