"""Iterators that save themselves: what version 1 of Orbax asks of anything with a state."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gristmill.checkpoint._files import as_text, read_state, write_state

T = TypeVar("T")


class FolderToCome(Protocol):
    """A folder that Orbax is about to make."""

    async def await_creation(self) -> Path:
        """Wait until it is there."""
        ...


class Saved(ABC):
    """An iterator that Orbax saves and loads by its own methods.

    `save` and `load` do at once what needs the iterator as it stands, and give the rest to be
    awaited, which waits for files.
    """

    @abstractmethod
    def get_state(self) -> Any:
        """Give the place after the last element that was handed out."""

    @abstractmethod
    def set_state(self, state: Any) -> None:
        """Go on from a place."""

    @abstractmethod
    def start_prefetch(self) -> None:
        """Begin to make elements before they are asked for."""

    async def save(self, directory: FolderToCome) -> Awaitable[None]:
        """Save the present place into a folder; elements taken later do not change it."""
        text = as_text(self.get_state())

        async def write() -> None:
            folder = await directory.await_creation()
            await _in_thread(write_state, folder, text)

        return write()

    async def load(self, directory: Path) -> Awaitable[None]:
        """Go on from the place that was saved into a folder, by whatever number of processes."""
        like = self.get_state()

        async def read() -> None:
            self.set_state(await _in_thread(read_state, directory, like))
            self.start_prefetch()

        return read()


def _in_thread(function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
    """Call a function in a thread of the event loop.

    Who awaits that has `asyncio` imported; a worker has not, and is up a tenth sooner.
    """
    return importlib.import_module("asyncio").to_thread(function, *arguments)
