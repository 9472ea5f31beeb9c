"""Decode the columns of MDS records."""

import json
from collections.abc import Callable
from decimal import Decimal
from functools import partial

import numpy as np

from gristmill.types import AnyArray, Element

_SCALARS = (
    "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64".split()  # noqa: SIM905
)
_DTYPE_CODES = {
    8: "u1", 9: "i1", 16: "<u2", 17: "<i2", 18: "<f2", 32: "<u4", 33: "<i4", 34: "<f4",
    64: "<u8", 65: "<i8", 66: "<f8",
}  # fmt: skip


def find_decoder(encoding: str) -> Callable[[bytes], Element] | None:
    """Return the function that decodes a column; `None` if it cannot be decoded safely.

    Images stay encoded. Pickles are not decoded, because that can run any code.

    Args:
        encoding: The name in the index of the dataset, such as "int" or "ndarray:float32".
    """
    name, _, config = encoding.partition(":")
    if name in ("bytes", "jpeg", "png"):
        return bytes
    if name == "ndarray":
        dtype, _, shape = config.partition(":")
        if dtype and dtype not in _SCALARS:
            return None
        sizes = [int(size) for size in shape.split(",")] if shape else None
        if sizes and min(sizes) < 0:
            raise ValueError("the size of an axis is negative")
        return partial(_decode_array, dtype=dtype, shape=sizes)
    if name in _SCALARS:
        return partial(_decode_scalar, dtype=name)
    return _DECODERS.get(name)


def _decode_scalar(data: bytes, *, dtype: str) -> Element:
    (value,) = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))
    return value


def _decode_array(data: bytes, *, dtype: str, shape: list[int] | None) -> AnyArray:
    """Decode an array. A type or shape that the encoding leaves open is before its items."""
    at = 0
    kind = np.dtype(dtype).newbyteorder("<") if dtype else np.dtype(_DTYPE_CODES[data[0]])
    at += 0 if dtype else 1
    sizes = shape
    if sizes is None:
        num_axes, width = data[at] >> 2, data[at] & 3
        at += 1
        stop = at + (num_axes << width)
        sizes = np.frombuffer(data[at:stop], f"<u{1 << width}").tolist()
        if len(sizes) != num_axes:
            raise ValueError("the shape is cut off")
        at = stop
    return np.frombuffer(bytearray(data[at:]), kind).reshape(sizes)


_DECODERS: dict[str, Callable[[bytes], Element]] = {
    "str": lambda data: data.decode(),
    "int": lambda data: int(_decode_scalar(data, dtype="int64")),
    "str_int": lambda data: int(data.decode()),
    "str_float": lambda data: float(data.decode()),
    "str_decimal": lambda data: Decimal(data.decode()),
    "json": lambda data: json.loads(data.decode()),
}
