"""The pools of Ray actors of this process: one that needs room ends the actors of idle ones."""

import weakref
from typing import Protocol


class IdlePool(Protocol):
    """A pool that may hold actors that no session uses."""

    @property
    def is_holding_room(self) -> bool:
        """Whether there are such actors."""
        ...

    def release(self) -> None:
        """End them. Any thread may call this."""
        ...


_pools: "weakref.WeakSet[IdlePool]" = weakref.WeakSet()


def register(pool: IdlePool) -> None:
    """Let others release a pool as long as it exists."""
    _pools.add(pool)


def release_idle() -> None:
    """End the actors that no session uses."""
    for pool in list(_pools):
        if pool.is_holding_room:
            pool.release()
