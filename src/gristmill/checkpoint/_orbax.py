"""Orbax's side: what `CheckpointManager.save` and `restore` are given for an iterator."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from gristmill._extras import load_extra
from gristmill.checkpoint._files import as_text, read_state, write_state

_ocp: Any = load_extra("orbax.checkpoint", extra="orbax", wanted_by="Saving iterators with Orbax")


@final
class CheckpointHandler(_ocp.AsyncCheckpointHandler):
    """Saves the place of an iterator, of a `DataLoader` or a dataset, and goes back to it.

    The place is that of the moment when Orbax is told to save. The file is written in the
    background if Orbax is asynchronous, and Orbax makes it visible together with the model.
    """

    async def async_save(self, directory: Path, item: Any = None, args: Any = None) -> list[Any]:
        """Note the place of an iterator, and give what waits until it is in a file."""
        text = as_text(_given(item, args).get_state())

        async def write() -> None:
            await asyncio.to_thread(write_state, directory, text)

        return [_ocp.future.CommitFutureAwaitingContractedSignals(write(), name="gristmill_save")]

    def save(self, directory: Path, item: Any = None, args: Any = None) -> None:
        """Write the place of an iterator into a folder."""
        write_state(directory, as_text(_given(item, args).get_state()))

    def restore(self, directory: Path, item: Any = None, args: Any = None) -> Any:
        """Set an iterator to the place in a folder, let it begin to read, and give it back."""
        iterator = _given(item, args)
        iterator.set_state(read_state(directory, like=iterator.get_state()))
        iterator.start_prefetch()
        return iterator

    def structure(self, directory: Path) -> None:
        """Give nothing: a state is no tree of arrays."""

    def metadata(self, directory: Path) -> None:
        """Give nothing: a state has nothing to say about itself."""

    def finalize(self, directory: Path) -> None:
        """Do nothing: a file is whole when it has its name."""

    def close(self) -> None:
        """Do nothing: nothing is kept open."""

    @classmethod
    def typestr(cls) -> str:
        """Give the name that Orbax writes beside what this has saved."""
        return f"{cls.__module__}.{cls.__qualname__}"


@final
@dataclass
class CheckpointSave(_ocp.args.CheckpointArgs):
    """The iterator whose place is to be saved.

    >>> import gristmill, tempfile
    >>> iterator = iter(gristmill.MapDataset.range(5))
    >>> next(iterator)
    0
    >>> with _ocp.CheckpointManager(tempfile.mkdtemp()) as manager:
    ...     _ = manager.save(1, args=CheckpointSave(iterator))
    ...     manager.wait_until_finished()
    ...     next(manager.restore(1, args=CheckpointRestore(iter(gristmill.MapDataset.range(5)))))
    1
    """

    item: Any


@final
@dataclass
class CheckpointRestore(_ocp.args.CheckpointArgs):
    """The iterator that is to go on from a saved place. It is given back, too."""

    item: Any


_ocp.args.register_with_handler(CheckpointHandler, for_save=True)(CheckpointSave)
_ocp.args.register_with_handler(CheckpointHandler, for_restore=True)(CheckpointRestore)


def _given(item: Any, args: Any) -> Any:
    return args.item if item is None else item
