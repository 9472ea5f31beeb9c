"""Put arrays where arrays like them went before, without working out again what that takes.

`jax.device_put` finds out for each array what it is and how it is shared out, which takes ten times
as long as handing it over. The batches of a feeding are alike: what JAX made of the first is kept,
and the others go the same way.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, cast, final

import numpy as np
from numpy.typing import NDArray


class _Way(NamedTuple):
    """What JAX made of an array of some shape and type, and which part goes to which device."""

    aval: Any
    sharding: Any
    devices: list[Any]
    parts: list[Any]
    is_committed: bool


@final
class Shortcut:
    """Knows the ways of arrays that were put before."""

    def __init__(self) -> None:
        self._hand_over = _find_hand_over()
        self._ways: dict[Any, _Way] = {}

    def put(self, array: Any, place: Any) -> Any:
        """Give an array there, if one like it went there before, else `None`."""
        if self._hand_over is None or not isinstance(array, np.ndarray):
            return None
        given = cast("NDArray[Any]", array)
        way = self._ways.get((given.shape, given.dtype, place))
        if way is None:
            return None
        parts = [given[part] for part in way.parts]
        try:
            return self._hand_over(way.aval, way.sharding, parts, way.devices, way.is_committed)
        except (TypeError, AttributeError):  # another version of JAX: no shortcut there
            self._hand_over = None
            return None

    def learn(self, array: Any, place: Any, placed: Any) -> None:
        """Note what became of an array."""
        if self._hand_over is None or not isinstance(array, np.ndarray):
            return
        given = cast("NDArray[Any]", array)
        if placed.dtype != given.dtype or placed.shape != given.shape:
            return  # JAX has changed it, as it will the next
        parts = placed.sharding.addressable_devices_indices_map(placed.shape)
        self._ways[given.shape, given.dtype, place] = _Way(
            placed.aval, placed.sharding, list(parts), list(parts.values()), placed.committed
        )


def _find_hand_over() -> Callable[..., Any] | None:
    """Give what `jax.device_put` itself ends in; it is no part of JAX's public interface."""
    try:
        found: Any = importlib.import_module("jax._src.interpreters.pxla").batched_device_put
    except (ImportError, AttributeError):
        return None
    return found
