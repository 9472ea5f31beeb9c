"""Encode elements of any shape as bytes, and decode them without running any code.

Arrays, numbers, strings, bytes and `None`, in dicts, lists and tuples. Each value is a tag of one
byte, followed by its content; sizes are unsigned integers of 8 bytes, little-endian.
"""

import pickle
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np

from gristmill.types import AnyArray, AnyDType, Element

_MAX_DEPTH = 100
_MAX_AXES = 32
_SIZE = struct.Struct("<Q")
_DTYPE = re.compile(r"[<>|=]?(b1|[iufc]\d{1,2}|[mM]8(\[\d*[A-Za-zμ]{1,7}\])?|[US]\d{1,9})")


class CodecError(Exception):
    """A value cannot be encoded, or bytes are not those of a value. Never reaches the user."""


def encode(element: Element) -> bytes:
    """Return an element as bytes.

    >>> decode(encode({"text": "a", "tokens": [1, 2.5, None]}))
    {'text': 'a', 'tokens': [1, 2.5, None]}

    Raises:
        CodecError: The element holds an object of another type; the message names it.
    """
    parts: list[bytes] = []
    _encode(element, parts, 0)
    return b"".join(parts)


def _encode(value: Any, parts: list[bytes], depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise CodecError("a tree that is nested too deeply")
    kind = cast(Any, type(value))
    if kind is list or kind is tuple:
        parts.append((b"l" if kind is list else b"t") + _SIZE.pack(len(value)))
        for item in cast("list[Any]", value):
            _encode(item, parts, depth + 1)
    elif kind is dict:
        parts.append(b"d" + _SIZE.pack(len(value)))
        for item in cast("dict[Any, Any]", value).items():
            for part in item:
                _encode(part, parts, depth + 1)
    elif kind is np.ndarray or issubclass(kind, np.generic):
        _encode_array(np.asarray(value), b"a" if kind is np.ndarray else b"g", parts)
    else:
        _encode_leaf(value, parts)


def _encode_leaf(value: Any, parts: list[bytes]) -> None:
    kind = cast(Any, type(value))
    if value is None or kind is bool:
        parts.append(b"N" if value is None else b"T" if value else b"F")
    elif kind is int:
        _add(parts, b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    elif kind is float:
        parts.append(b"f" + struct.pack("<d", value))
    elif kind is str:
        _add(parts, b"s", value.encode(errors="surrogatepass"))
    elif kind is bytes:
        _add(parts, b"b", value)
    else:
        raise CodecError(f"an object of type {kind.__name__}")


def _add(parts: list[bytes], tag: bytes, content: bytes) -> None:
    parts += (tag, _SIZE.pack(len(content)), content)


def _encode_array(array: AnyArray, tag: bytes, parts: list[bytes]) -> None:
    if not is_plain(array.dtype):
        raise CodecError(f"an array of dtype {array.dtype}")
    _add(parts, tag, array.dtype.str.encode())
    parts.append(struct.pack(f"<B{array.ndim}Q", array.ndim, *array.shape))
    parts.append(array.tobytes())


def is_plain(dtype: AnyDType) -> bool:
    """Return whether the bytes of an array of this dtype are all that there is to it."""
    return _DTYPE.fullmatch(dtype.str) is not None


def as_dtype(text: str) -> AnyDType:
    """Return the dtype of a name in a file.

    Raises:
        CodecError: It is not one that `is_plain` accepts.
    """
    if _DTYPE.fullmatch(text) is None:
        raise CodecError(f"the dtype {text!r:.50}")
    try:
        return np.dtype(text)
    except TypeError as error:
        raise CodecError(f"the dtype {text!r:.50}") from error


def decode(data: bytes) -> Element:
    """Return the element that `encode` made bytes of.

    Raises:
        CodecError: The bytes are not those of an element.
    """
    cursor = _ByteReader(data)
    try:
        element = cursor.value(0)
    except (ValueError, struct.error, TypeError, OverflowError, MemoryError) as error:
        raise CodecError("damaged bytes") from error
    if not cursor.is_at_end:
        raise CodecError("damaged bytes")
    return element


@final
class _ByteReader:
    """Reads values one after the other, and never past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise CodecError("damaged bytes")
        tag = self._take(1)
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag == b"f":
            return struct.unpack("<d", self._take(8))[0]
        size = _SIZE.unpack(self._take(8))[0]
        if tag in b"lt":
            items = [self.value(depth + 1) for _ in range(self._checked(size))]
            return items if tag == b"l" else tuple(items)
        if tag == b"d":
            count = range(self._checked(size))
            return {self.value(depth + 1): self.value(depth + 1) for _ in count}
        content = self._take(size)
        if tag == b"i":
            return int.from_bytes(content, "little", signed=True)
        if tag == b"s":
            return content.decode(errors="surrogatepass")
        if tag == b"b":
            return content
        if tag in b"ag":
            array = self._array(as_dtype(content.decode()))
            return array if tag == b"a" else array[()]
        raise CodecError("damaged bytes")

    def _checked(self, count: int) -> int:
        """Return a number of values, each of which takes at least a byte."""
        if count > len(self._data) - self._at:
            raise CodecError("damaged bytes")
        return count

    def _array(self, dtype: AnyDType) -> AnyArray:
        num_axes = self._take(1)[0]
        if num_axes > _MAX_AXES:
            raise CodecError("damaged bytes")
        shape = struct.unpack(f"<{num_axes}Q", self._take(8 * num_axes))
        num_bytes = dtype.itemsize
        for length in shape:
            num_bytes *= length
        content = bytearray(self._take(num_bytes))  # an array over a bytearray is writable
        if not num_bytes:
            return np.empty(shape, dtype)
        return np.frombuffer(content, dtype).reshape(shape)

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise CodecError("damaged bytes")
        self._at += count
        return taken


@final
@dataclass(frozen=True)
class Codec:
    """How elements become bytes and elements again; both raise `CodecError`."""

    encode: Callable[[Element], bytes]
    decode: Callable[[bytes], Element]


PLAIN_CODEC = Codec(encode, decode)
"""For files, which are not trusted."""


def _pickled(element: Element) -> bytes:
    try:
        return pickle.dumps(element, 5)
    except Exception as error:
        raise CodecError(f"an object of type {type(element).__name__} ({error})") from error


PICKLE_CODEC = Codec(_pickled, pickle.loads)
"""For memory that only this process and its workers have."""

_CONSTANTS: dict[bytes, bool | None] = {b"N": None, b"T": True, b"F": False}
