"""Compares records exactly (containers, types, dtypes, shapes, bits), and overwrites them."""

import pickle
from typing import cast

import numpy as np

from gristmill._base.trees.tree import children, leaves_with_paths
from gristmill.types import AnyArray, Element, SupportsArray


def difference(expected: Element, actual: Element, path: str = "record") -> str | None:
    """Describe the first difference between two records, or return None if there is none.

    >>> difference({"x": np.int32(1)}, {"x": np.int64(1)})
    'record["x"] is int64, expected int32'

    Args:
        expected: The record as it should be.
        actual: The record as it is.
        path: Name of the record in the description.
    """
    if type(expected) is not type(actual):
        return f"{path} is {type(actual).__name__}, expected {type(expected).__name__}"
    expected_inner, actual_inner = children(expected), children(actual)
    if expected_inner is None or actual_inner is None:
        return _leaf_difference(expected, actual, path)
    if expected_inner[0] != actual_inner[0]:
        return (
            f"{path} has {_join_or_nothing(actual_inner[0])}, "
            f"expected {_join_or_nothing(expected_inner[0])}"
        )
    pairs = zip(expected_inner[1], actual_inner[1], strict=True)
    for step, (one, other) in zip(expected_inner[0], pairs, strict=True):
        found = difference(one, other, path + step)
        if found is not None:
            return found
    return None


def overwrite(record: Element) -> None:
    """Change every value in the writable arrays of a record.

    >>> record = {"x": np.array([0, 255], np.uint8)}
    >>> overwrite(record)
    >>> record
    {'x': array([255,   0], dtype=uint8)}
    """
    for _, leaf in leaves_with_paths(record):
        if not isinstance(leaf, np.ndarray):
            continue
        array = cast("AnyArray", leaf)
        if not array.flags.writeable:
            continue
        if array.dtype.hasobject:
            array[...] = np.zeros((), array.dtype)
        elif array.dtype.kind in "UT":  # not all bit patterns are characters
            array[...] = np.where(array == "", "?", "")
        elif array.dtype.kind == "b":
            array[...] = ~array
        elif array.dtype.itemsize:
            bits = np.frombuffer(array.tobytes(), np.uint8)
            array[...] = (~bits).view(array.dtype).reshape(array.shape)


def _leaf_difference(expected: object, actual: object, path: str) -> str | None:
    if not isinstance(expected, SupportsArray):
        # Objects of a class without `__eq__` are equal only to themselves, so pickles are compared.
        is_same = bool(expected == actual) or pickle.dumps(expected) == pickle.dumps(actual)
        return None if is_same else f"{path} is {_shorten(actual)}, expected {_shorten(expected)}"
    one, other = np.asarray(expected), np.asarray(actual)
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{path} is {_describe_type(other)}, expected {_describe_type(one)}"
    if _are_identical(one, other):
        return None
    return f"{path} is {_shorten(other)}, expected {_shorten(one)}"


def _are_identical(one: AnyArray, other: AnyArray) -> bool:
    """Compare bit by bit, so that a NaN equals itself, but without the padding between fields."""
    if one.dtype.names is not None:
        return all(_are_identical(one[name], other[name]) for name in one.dtype.names)
    if one.dtype.hasobject or one.dtype.kind == "T":  # the bits are addresses
        pairs = zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)
        return all(difference(*pair) is None for pair in pairs)
    return one.tobytes() == other.tobytes()


def _describe_type(array: AnyArray) -> str:
    return f"{array.dtype}{list(array.shape) or ''}"


def _join_or_nothing(steps: list[str]) -> str:
    return ", ".join(steps) or "nothing"


def _shorten(value: object) -> str:
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
