"""The protocol by which version 1 of Orbax saves and loads an iterator."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gristmill._base.grain.classes import GrainLookalike
from gristmill._checkpoint.files import read_state, to_json, write_state
from gristmill._checkpoint.state import load_json
from gristmill.types import JsonObject

T = TypeVar("T")


class DeferredFolder(Protocol):
    """A folder that Orbax is about to create."""

    async def await_creation(self) -> Path:
        """Wait until the folder exists, and return it."""
        ...


class OrbaxCheckpointable(GrainLookalike, ABC):
    """An iterator that Orbax saves and loads through its own methods.

    `save` and `load` read or note the position of the iterator immediately, and return an awaitable
    that waits for the files.
    """

    @abstractmethod
    def get_state(self) -> Any:
        """Return the position after the last element that was handed out."""

    @abstractmethod
    def set_state(self, state: Any) -> None:
        """Continue from a state."""

    @abstractmethod
    def start_prefetch(self) -> None:
        """Start to compute elements before they are requested."""

    def state_dict(self) -> JsonObject:
        """Return the state as a dict, as PyTorch's stateful objects do.

        >>> from gristmill import load
        >>> iterator = iter(load(range(6), num_epochs=1, batch_size=2))
        >>> next(iterator)
        array([0, 1])
        >>> state = iterator.state_dict()
        >>> next(iterator)
        array([2, 3])
        >>> iterator.load_state_dict(state)
        >>> next(iterator)
        array([2, 3])
        """
        state = self.get_state()
        return load_json(state.decode()) if isinstance(state, bytes) else state

    def load_state_dict(self, state_dict: JsonObject) -> None:
        """Continue from a result of `state_dict`.

        Args:
            state_dict: The state, of this or another iterator over an equal pipeline.
        """
        is_bytes = isinstance(self.get_state(), bytes)
        self.set_state(to_json(state_dict).encode() if is_bytes else state_dict)

    async def save(self, directory: DeferredFolder) -> Awaitable[None]:
        """Save the current position in a folder; elements taken later do not change it.

        Args:
            directory: A folder that Orbax is about to make.
        """
        json_text = to_json(self.get_state())

        async def write() -> None:
            folder = await directory.await_creation()
            await _in_thread(write_state, folder, json_text)

        return write()

    async def load(self, directory: Path) -> Awaitable[None]:
        """Continue from the position saved in a folder, by any number of processes.

        Args:
            directory: The folder.
        """
        like = self.get_state()

        async def read() -> None:
            self.set_state(await _in_thread(read_state, directory, like))
            self.start_prefetch()

        return read()


def _in_thread(function: Callable[..., T], *arguments: object) -> Awaitable[T]:
    """Call a function in a thread of the event loop.

    A caller that awaits the result has imported `asyncio` already. Workers never need it, and start
    a tenth sooner without it.
    """
    return importlib.import_module("asyncio").to_thread(function, *arguments)
