"""States as arrays of integers, for checkpoints that are trees of arrays.

A state is JSON, and contains strings. Its bytes, three to an integer, make a form of the state
whose leaves are small integers, exact even where JAX has only 32 bits:

    {"gristmill": [8014363, ...], "pipeline": [10265720, ...]}

The first leaf is the position, padded so that its length does not change while the stream advances.
The second one describes the pipeline, compressed, and never changes.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._base.grain.mode import is_grain_mode
from gristmill.errors import StateError
from gristmill.types import JsonObject

_BYTES_PER_INTEGER = 3
PADDING = int.from_bytes(b"   ", "big")
"""An integer that may follow those of a state: spaces after its JSON."""
_MIN_POSITION_INTEGERS = 64
"""Enough for a position of any number of digits, so that only nested states are longer."""
_MAX_DESCRIPTION_BYTES = 1 << 24
"""A larger description is not decompressed: no pipeline has one."""

_PIPELINE_FIELDS = frozenset({"source", "order", "steps", "library"})


def as_returned(state: JsonObject) -> JsonObject:
    """Return a state in the form in which `get_state` of a dataset iterator returns it.

    If gristmill replaces Grain, that is lists of integers instead of JSON with strings. Like the
    states of Grain, they can be written as JSON, and be part of a tree whose leaves are arrays and
    numbers.
    """
    if not is_grain_mode():
        return state
    return {name: leaf.tolist() for name, leaf in state_to_arrays(state).items()}


def state_to_arrays(state: bytes | JsonObject) -> dict[str, NDArray[np.int32]]:
    """Return a state as a dict of arrays, for a checkpoint that is a tree of arrays.

    `set_state` takes this form, too, even after a checkpoint library has converted the arrays to
    those of JAX. The shapes stay the same while the stream advances, except for streams whose state
    grows, such as one that skips bad records.

    Args:
        state: A result of `get_state`, of a loader or a dataset.

    Raises:
        StateError: The state contains something else than JSON, from an iterator of your own.

    >>> from gristmill import MapDataset
    >>> iterator = iter(MapDataset.range(5))
    >>> next(iterator)
    0
    >>> arrays = state_to_arrays(iterator.get_state())
    >>> {name: (leaf.dtype.name, leaf.ndim) for name, leaf in arrays.items()}
    {'gristmill': ('int32', 1), 'pipeline': ('int32', 1)}
    >>> again = iter(MapDataset.range(5))
    >>> again.set_state(arrays)
    >>> next(again)
    1
    """
    body = cast(JsonObject, json.loads(state) if isinstance(state, bytes) else state)
    if is_array_state(body):
        body = state_from_arrays(body)
    position = {name: value for name, value in body.items() if name not in _PIPELINE_FIELDS}
    pipeline = {name: value for name, value in body.items() if name in _PIPELINE_FIELDS}
    count = _MIN_POSITION_INTEGERS
    position_json = _to_json(position)
    while count * _BYTES_PER_INTEGER < len(position_json):
        count *= 2
    return {
        "gristmill": _pack(position_json.ljust(count * _BYTES_PER_INTEGER)),
        "pipeline": _pack(zlib.compress(_to_json(pipeline))),
    }


def is_array_state(state: Mapping[str, Any]) -> bool:
    """Return whether a state is in the form of arrays or integers."""
    return not isinstance(state.get("gristmill"), int | float | str | None)


def state_from_arrays(state: Mapping[str, Any]) -> JsonObject:
    """Return the state that arrays or lists of integers contain.

    >>> state = {"gristmill": 1, "cursor": [4], "steps": ["Map f"]}
    >>> state_from_arrays(state_to_arrays(state)) == state
    True
    """
    try:
        decompress = zlib.decompressobj().decompress
        pipeline = decompress(_unpack(state["pipeline"]), _MAX_DESCRIPTION_BYTES)
        return {**json.loads(_unpack(state["gristmill"])), **json.loads(pipeline)}
    except (KeyError, TypeError, ValueError, OverflowError, zlib.error, RecursionError):
        raise StateError(
            "The state is corrupt: its arrays do not contain a state. Restore an earlier "
            "checkpoint."
        ) from None


def _to_json(value: JsonObject) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise StateError(
            f"The state cannot be converted to arrays: {error}. Let `get_state` of your own "
            "iterator return numbers, strings, lists and dicts."
        ) from None


def _pack(data: bytes) -> NDArray[np.int32]:
    data += bytes(-len(data) % _BYTES_PER_INTEGER)
    digits = np.frombuffer(data, dtype=np.uint8).reshape(-1, _BYTES_PER_INTEGER).astype(np.int32)
    return (digits[:, 0] << 16) | (digits[:, 1] << 8) | digits[:, 2]


def _unpack(leaf: Iterable[Any]) -> bytes:
    if isinstance(leaf, list | tuple):
        leaf = [int(number) for number in cast("Iterable[Any]", leaf)]  # may be scalars of JAX
    numbers: NDArray[Any] = np.asarray(leaf)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1 or np.any(numbers >> 24):
        raise ValueError(numbers.shape)
    digits = numbers.astype(np.int64)
    return np.stack([digits >> 16, digits >> 8 & 255, digits & 255], axis=1).astype("u1").tobytes()
