"""The objects of JAX that a feed handles, described without importing JAX."""

from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Protocol, TypeAlias

from gristmill.types import AnyDType

Target: TypeAlias = Hashable
"""Where an array is placed: a `Device`, a `Sharding`, or `None` for JAX's default device."""


class Device(Protocol):
    """What a feed uses of `jax.Device`."""

    @property
    def process_index(self) -> int: ...


class Sharding(Protocol):
    """What a feed uses of `jax.sharding.Sharding`."""

    @property
    def is_fully_addressable(self) -> bool: ...

    @property
    def device_set(self) -> AbstractSet[Device]: ...

    def addressable_devices_indices_map(
        self, shape: tuple[int, ...], /
    ) -> Mapping[Device, tuple[slice, ...] | None]:
        """Return the part of an array that each device of this process holds."""
        ...


class JaxArray(Protocol):
    """What a feed uses of `jax.Array`."""

    @property
    def aval(self) -> Any: ...

    @property
    def committed(self) -> bool: ...

    @property
    def dtype(self) -> AnyDType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def sharding(self) -> Sharding: ...
