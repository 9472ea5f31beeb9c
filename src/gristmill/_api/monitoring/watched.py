"""What other processes may watch: it costs nothing, and imports nothing, unless it is requested."""

import importlib
import os
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, final

VARIABLE = "GRISTMILL_MONITOR"
"""The environment variable that requests it for all loaders, iterators and feeds of a process."""


@final
class Watched:
    """Objects by identity, as long as they exist.

    >>> class Loader: ...
    >>> loader, watched = Loader(), Watched()
    >>> watched.add(loader)
    >>> loader in watched, len(list(watched))
    (True, 1)
    >>> del loader
    >>> list(watched)
    []
    """

    def __init__(self) -> None:
        self._objects: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def add(self, one: object) -> None:
        """Add an object."""
        self._objects[id(one)] = one

    def __contains__(self, one: object) -> bool:
        return self._objects.get(id(one)) is one

    def __bool__(self) -> bool:
        return bool(self._objects)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._objects.values()))


WATCHED = Watched()
"""What the socket of this process answers for."""


def watch(source: object) -> str:
    """Let other processes of the user watch a source, and return the path of the socket.

    Raises:
        PlanError: The socket cannot be made.
    """
    return str(_monitor().watch(source))


def watch_if_requested(source: object, *origins: object) -> None:
    """Watch a source if the environment requests it, or if something that it comes from is watched.

    Args:
        source: A loader, an iterator or a feed.
        *origins: What it was made from: a loader, an iterator, or a dataset, which stands for the
            datasets below it, too.
    """
    is_requested = os.environ.get(VARIABLE, "") not in ("", "0")
    if is_requested or (WATCHED and any(one in WATCHED for one in _with_parents(origins))):
        _monitor().watch_if_possible(source)


def _with_parents(origins: Iterable[Any]) -> Iterator[object]:
    for origin in origins:
        yield origin
        yield from _with_parents(getattr(origin, "parents", ()))


def _monitor() -> Any:
    """Return what answers `gristmill top`. Most programs have none, so it is imported here."""
    return importlib.import_module("gristmill._api.monitoring.monitor").MONITOR
