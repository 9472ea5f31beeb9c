"""Compare records exactly (containers, types, dtypes, shapes, bits), and spoil them."""

import pickle
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._tree import children, leaves_with_paths
from gristmill.types import Element, SupportsArray


def difference(expected: Element, got: Element, path: str = "record") -> str | None:
    """Say where and how `got` is not `expected`, or give `None` if it is.

    >>> difference({"x": np.int32(1)}, {"x": np.int64(1)})
    'record["x"] is int64, and should be int32'
    """
    if type(expected) is not type(got):
        return f"{path} is {type(got).__name__}, and should be {type(expected).__name__}"
    wanted, found = children(expected), children(got)
    if wanted is None or found is None:
        return _leaf_difference(expected, got, path)
    if wanted[0] != found[0]:
        return f"{path} has {_told(found[0])}, and should have {_told(wanted[0])}"
    for step, one, other in zip(wanted[0], wanted[1], found[1], strict=True):
        told = difference(one, other, path + step)
        if told is not None:
            return told
    return None


def overwrite(record: Element) -> None:
    """Change all that can be changed in the arrays of a record.

    >>> record = {"x": np.array([0, 255], np.uint8)}
    >>> overwrite(record)
    >>> record
    {'x': array([255,   0], dtype=uint8)}
    """
    for _, leaf in leaves_with_paths(record):
        if not isinstance(leaf, np.ndarray):
            continue
        array = cast("NDArray[Any]", leaf)
        if not array.flags.writeable:
            continue
        if array.dtype.hasobject:
            array[...] = np.zeros((), array.dtype)
        elif array.dtype.kind in "UT":  # not all bits are characters
            array[...] = np.where(array == "", "?", "")
        elif array.dtype.kind == "b":
            array[...] = ~array
        elif array.dtype.itemsize:
            bits = np.frombuffer(array.tobytes(), np.uint8)
            array[...] = (~bits).view(array.dtype).reshape(array.shape)


def _leaf_difference(expected: Any, got: Any, path: str) -> str | None:
    if not isinstance(expected, SupportsArray):
        # Objects of a class without an `__eq__` are equal to nothing but themselves.
        is_same = bool(expected == got) or pickle.dumps(expected) == pickle.dumps(got)
        return None if is_same else f"{path} is {_short(got)}, and should be {_short(expected)}"
    one, other = np.asarray(expected), np.asarray(got)
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{path} is {_kind(other)}, and should be {_kind(one)}"
    if _is_same_array(one, other):
        return None
    return f"{path} is {_short(other)}, and should be {_short(one)}"


def _is_same_array(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Compare bit for bit, as a NaN is the same NaN; but for the gaps between fields."""
    if one.dtype.names is not None:
        return all(_is_same_array(one[name], other[name]) for name in one.dtype.names)
    if one.dtype.hasobject or one.dtype.kind == "T":  # the bits are addresses
        pairs = zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)
        return all(difference(*pair) is None for pair in pairs)
    return one.tobytes() == other.tobytes()


def _kind(array: NDArray[Any]) -> str:
    return f"{array.dtype}{list(array.shape) or ''}"


def _told(steps: list[str]) -> str:
    return ", ".join(steps) or "nothing"


def _short(value: Any) -> str:
    told = " ".join(repr(value).split())
    return told if len(told) <= 80 else f"{told[:77]}..."
