"""A faster `jax.device_put` for arrays of a shape and dtype that were placed before.

`jax.device_put` analyses each array and its sharding, which takes ten times as long as the transfer
call itself. The batches of a feed are alike, so the result for the first one is reused.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast, final

import numpy as np

from gristmill._api.feeding.jax_types import Device, JaxArray, Sharding, Target
from gristmill.types import AnyArray, AnyDType

_Key: TypeAlias = tuple[tuple[int, ...], AnyDType, Target]
"""The shape and dtype of an array, and its target."""


class _Transfer(NamedTuple):
    """How JAX placed an array: its abstract value, and which slice went to which device."""

    aval: Any
    sharding: Sharding
    devices: list[Device]
    slices: list[tuple[slice, ...] | None]
    is_committed: bool


@final
class FastDevicePut:
    """Places arrays in the same way as JAX placed arrays like them before."""

    def __init__(self) -> None:
        self._batched_device_put = _find_batched_device_put()
        self._transfers: dict[_Key, _Transfer] = {}

    def put(self, array: object, target: Target) -> JaxArray | None:
        """Return the array on `target`, or `None` if no array like it was recorded."""
        if self._batched_device_put is None or not isinstance(array, np.ndarray):
            return None
        host_array = cast("AnyArray", array)
        transfer = self._transfers.get((host_array.shape, host_array.dtype, target))
        if transfer is None:
            return None
        shards = [host_array[piece] for piece in transfer.slices]
        try:
            return self._batched_device_put(
                transfer.aval, transfer.sharding, shards, transfer.devices, transfer.is_committed
            )
        except (TypeError, AttributeError):  # another version of JAX, with another signature
            self._batched_device_put = None
            return None

    def record(self, array: object, target: Target, placed: JaxArray) -> None:
        """Record how `jax.device_put(array, target)` placed an array."""
        if self._batched_device_put is None or not isinstance(array, np.ndarray):
            return
        host_array = cast("AnyArray", array)
        if placed.dtype != host_array.dtype or placed.shape != host_array.shape:
            return  # JAX has converted it, and will convert the next one
        slices = placed.sharding.addressable_devices_indices_map(placed.shape)
        self._transfers[host_array.shape, host_array.dtype, target] = _Transfer(
            placed.aval, placed.sharding, list(slices), list(slices.values()), placed.committed
        )


def _find_batched_device_put() -> Callable[..., JaxArray] | None:
    """Return the function that `jax.device_put` ends in. It is not part of JAX's public API."""
    try:
        return importlib.import_module("jax._src.interpreters.pxla").batched_device_put
    except (ImportError, AttributeError):
        return None
