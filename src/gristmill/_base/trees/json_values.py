"""Numbers, strings and arrays, and trees of them, as JSON and back, exactly."""

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from gristmill.errors import PlanTypeError, StateError
from gristmill.types import AnyArray

JsonValue: TypeAlias = Any
"""What the module `json` writes and reads."""

_MAX_DEPTH = 32


def copy_value(value: Any) -> Any:
    """Return a copy of a value that shares no list, dict or array with it.

    >>> copy_value({"total": 1.5, "last": [1, 2]})
    {'total': 1.5, 'last': [1, 2]}
    """
    if isinstance(value, dict):
        return {key: copy_value(item) for key, item in cast("dict[Any, Any]", value).items()}
    kind: Any = type(cast("object", value))
    if kind is list or kind is tuple:
        items = [copy_value(item) for item in cast("list[Any]", value)]
        return items if kind is list else tuple(items)
    return cast("AnyArray", value).copy() if isinstance(value, np.ndarray) else value


def encode_value(value: Any, *, name: str, depth: int = 0) -> JsonValue:
    """Return a value as JSON.

    Args:
        value: A number, string, array, or a dict, list or tuple of such values.
        name: What the value is, for errors.
        depth: The number of trees around it.

    Raises:
        PlanTypeError: The value is or contains something else.

    >>> encode_value({"n": 3, "last": (1, None)}, name="the state")
    {'n': 3, 'last': ['tuple', 1, None]}
    """
    kind: Any = type(cast("object", value))
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is dict and depth < _MAX_DEPTH:
        items = cast("dict[Any, Any]", value)
        if all(type(key) is str for key in items):
            return {
                key: encode_value(item, name=name, depth=depth + 1) for key, item in items.items()
            }
    if kind in (list, tuple) and depth < _MAX_DEPTH:
        several = cast("list[Any]", value)
        encoded = [encode_value(item, name=name, depth=depth + 1) for item in several]
        return [kind.__name__, *encoded]
    if isinstance(value, np.generic | np.ndarray):
        array: AnyArray = np.asarray(cast("Any", value))
        if array.dtype.kind in "biufc":
            tag = "array" if isinstance(value, np.ndarray) else "scalar"
            stored = array.astype(array.dtype.newbyteorder("<"))
            data = base64.b64encode(stored.tobytes()).decode()
            return [tag, stored.dtype.str, list(array.shape), data]
    raise PlanTypeError(
        f"{name} contains {cast('object', value)!r:.100} of type {kind.__name__}, which cannot be "
        "written to a checkpoint. Use numbers, strings, NumPy arrays, and dicts (with strings as "
        "keys), lists and tuples of them."
    )


def decode_value(encoded: JsonValue, *, depth: int = 0) -> Any:
    """Return the value that `encode_value` has written.

    Raises:
        StateError: It was not written by `encode_value`.

    >>> decode_value(['tuple', 1, {'a': None}])
    (1, {'a': None})
    """
    if encoded is None or type(encoded) in (bool, int, float, str):
        return encoded
    if depth < _MAX_DEPTH and isinstance(encoded, Mapping):
        items = cast("Mapping[Any, Any]", encoded)
        if all(type(key) is str for key in items):
            return {key: decode_value(item, depth=depth + 1) for key, item in items.items()}
    if depth < _MAX_DEPTH and isinstance(encoded, list | tuple) and encoded:
        kind, *items = cast("list[Any]", encoded)
        if kind in ("list", "tuple"):
            values = [decode_value(item, depth=depth + 1) for item in items]
            return values if kind == "list" else tuple(values)
        if kind in ("array", "scalar") and len(items) == 3:
            array = _decode_array(*items)
            if array is not None and (kind == "array" or not array.shape):
                return array if kind == "array" else array[()]
    raise StateError(
        f"The state is corrupt: it has the carried value {encoded!r:.100}. Restore an earlier "
        "checkpoint."
    )


def _decode_array(dtype: Any, shape: Any, data: Any) -> Any:
    """Return an array, or `None` if its bytes do not fit its dtype and shape."""
    if type(dtype) is not str or type(data) is not str or not isinstance(shape, list | tuple):
        return None
    sizes = cast("list[Any]", shape)
    if len(sizes) > 32 or not all(type(size) is int and size >= 0 for size in sizes):
        return None
    try:
        kind = np.dtype(dtype)
        stored = base64.b64decode(data, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return None
    if (
        kind.kind not in "biufc"
        or kind.hasobject
        or math.prod(sizes) * kind.itemsize != len(stored)
    ):
        return None
    return np.frombuffer(stored, kind).reshape(sizes).astype(kind.newbyteorder("="))
