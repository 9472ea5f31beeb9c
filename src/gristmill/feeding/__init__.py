"""Feeding JAX: from a loader onto devices, meshes and hosts."""

from gristmill.feeding._device_put import device_put
from gristmill.feeding._feed import feed
from gristmill.feeding._iterator import FeedIterator

__all__ = ["FeedIterator", "device_put", "feed"]
