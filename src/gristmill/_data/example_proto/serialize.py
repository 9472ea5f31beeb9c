"""Serialisation of `tf.train.Example` messages."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gristmill._data.example_proto.parse import FIRST, SECOND, THIRD
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import AnyArray, Leaf, SupportsArray


def format_example(features: Mapping[str, Leaf]) -> bytes:
    r"""Return a serialised `tf.train.Example`, with the features in the given order.

    Strings and bytes, or lists of them, become a list of bytes; integers and booleans a list of
    64-bit integers; floats a list of 32-bit floats, which must represent them exactly. Arrays are
    flattened.

    >>> format_example({"label": 7})
    b'\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x07'
    """
    entries: list[bytes] = []
    for key, value in features.items():
        if not isinstance(cast(object, key), str):
            raise PlanTypeError(f"The name of a feature must be a string, got {key!r}.")
        entry = _sized(FIRST, _utf8(key, key)) + _sized(SECOND, _feature(key, value))
        entries.append(_sized(FIRST, entry))
    return _sized(FIRST, b"".join(entries))


def _feature(key: str, value: Leaf) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview | str):
        return _bytes_feature(key, [value])
    if isinstance(value, list | tuple):
        items = list(cast("Sequence[object]", value))
        if not items:
            return b""  # without a kind, which is unknown
        if any(isinstance(item, bytes | bytearray | memoryview | str) for item in items):
            return _bytes_feature(key, items)
        return _numbers_feature(key, value)
    if not isinstance(value, bool | int | float | np.generic | SupportsArray):
        raise _not_a_feature(key, value)
    array = np.asarray(value)
    if array.dtype.kind in "SU" or (array.dtype.kind == "O" and not isinstance(value, int)):
        return _bytes_feature(key, array.ravel().tolist())
    return _numbers_feature(key, value)


def _bytes_feature(key: str, items: Sequence[Leaf]) -> bytes:
    made: list[bytes] = []
    for item in items:
        if isinstance(item, str):
            made.append(_sized(FIRST, _utf8(key, item)))
        elif isinstance(item, bytes | bytearray | memoryview):
            made.append(_sized(FIRST, bytes(cast(bytes, item))))
        else:
            raise _not_a_feature(key, item)
    return _sized(FIRST, b"".join(made))


def _numbers_feature(key: str, value: Leaf) -> bytes:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise _not_a_feature(key, value) from None
    kind = array.dtype.kind
    if kind in "bui":
        if kind == "u" and array.size and array.max() >= 2**63:
            raise _too_large(key)
        return _sized(THIRD, _sized(FIRST, _varints(array.astype(np.int64).ravel())))
    if kind == "f":
        return _sized(SECOND, _sized(FIRST, _exact_floats(key, array).tobytes()))
    if kind == "O" and all(isinstance(item, int) for item in array.ravel()):
        raise _too_large(key)
    raise _not_a_feature(key, value)


def _exact_floats(key: str, array: AnyArray) -> NDArray[np.float32]:
    with np.errstate(over="ignore", under="ignore"):
        floats = array.astype("<f4").ravel()
    lost = np.flatnonzero((floats != array.ravel()) & ~np.isnan(floats))
    if len(lost):
        raise PlanError(
            f"Feature {key!r} holds {array.ravel()[lost[0]]}, which 32 bits cannot represent "
            "exactly, and an Example has no wider floats. Round it with `np.float32(...)`, or "
            "store its bytes."
        )
    return floats


def _varints(values: NDArray[np.int64]) -> bytes:
    bits = values.view(np.uint64)[:, None] >> (np.arange(10, dtype=np.uint64) * np.uint64(7))
    is_needed = bits != 0
    is_needed[:, 0] = True
    digits = (bits & np.uint64(127)).astype(np.uint8)
    digits[:, :-1] |= is_needed[:, 1:].astype(np.uint8) << 7
    return digits[is_needed].tobytes()


def _sized(tag: int, content: bytes) -> bytes:
    head = bytearray([tag])
    length = len(content)
    while length >= 128:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return bytes(head) + content


def _utf8(key: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise PlanError(
            f"Feature {key!r} holds half of a surrogate pair, which UTF-8 cannot represent. "
            "Pass it as bytes, in another encoding."
        ) from None


def _too_large(key: str) -> PlanError:
    return PlanError(
        f"Feature {key!r} holds an integer that does not fit in a signed 64-bit integer. Store it "
        "as bytes."
    )


def _kind_of(value: object) -> str:
    if not isinstance(value, np.ndarray | np.generic):
        return type(value).__name__
    array = cast("AnyArray", value)
    return f"an array of dtype {array.dtype} and shape {array.shape}"


def _not_a_feature(key: str, value: object) -> PlanTypeError:
    return PlanTypeError(
        f"Feature {key!r} must be bytes, strings, integers or floats, or a flat list or an array "
        f"of one of these, got {_kind_of(value)}. Convert it first, or store it as bytes."
    )
