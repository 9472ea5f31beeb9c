"""Orbax's handler for iterators, and its arguments for `CheckpointManager.save` and `restore`."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

from gristmill._base.extras import load_extra
from gristmill._checkpoint.checkpointable import OrbaxCheckpointable
from gristmill._checkpoint.files import read_state, to_json, write_state

_ocp: Any = load_extra("orbax.checkpoint", extra="orbax", wanted_by="Saving iterators with Orbax")

if TYPE_CHECKING:  # Orbax has no types: what these classes create fits where Orbax expects its own

    class _OrbaxMeta(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any: ...

    class _Handler(metaclass=_OrbaxMeta): ...

    class _Arguments(metaclass=_OrbaxMeta): ...

else:
    _Handler, _Arguments = _ocp.AsyncCheckpointHandler, _ocp.args.CheckpointArgs


@final
class CheckpointHandler(_Handler):
    """Saves and restores the position of an iterator of a `DataLoader` or dataset.

    The position is the one at the time of the call to `save`. An asynchronous Orbax writes the file
    in the background, and makes it visible together with the model.
    """

    async def async_save(
        self,
        directory: Path,
        item: OrbaxCheckpointable | None = None,
        args: "CheckpointSave | None" = None,
    ) -> list[Any]:
        """Note the position of an iterator, and return a future that waits for its file."""
        json_text = to_json(_iterator_of(item, args).get_state())

        async def write() -> None:
            await asyncio.to_thread(write_state, directory, json_text)

        return [_ocp.future.CommitFutureAwaitingContractedSignals(write(), name="gristmill_save")]

    def save(
        self,
        directory: Path,
        item: OrbaxCheckpointable | None = None,
        args: "CheckpointSave | None" = None,
    ) -> None:
        """Write the position of an iterator to a folder."""
        write_state(directory, to_json(_iterator_of(item, args).get_state()))

    def restore(
        self,
        directory: Path,
        item: OrbaxCheckpointable | None = None,
        args: "CheckpointRestore | None" = None,
    ) -> OrbaxCheckpointable:
        """Set an iterator to the position in a folder, start to prefetch, and return it."""
        iterator = _iterator_of(item, args)
        iterator.set_state(read_state(directory, like=iterator.get_state()))
        iterator.start_prefetch()
        return iterator

    def structure(self, directory: Path) -> None:
        """Return `None`: a state is not a tree of arrays."""

    def metadata(self, directory: Path) -> None:
        """Return `None`: a state has no metadata."""

    def finalize(self, directory: Path) -> None:
        """Do nothing: a file is complete when it has its name."""

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    @classmethod
    def typestr(cls) -> str:
        """Return the name that Orbax stores with a checkpoint of this handler."""
        return f"{cls.__module__}.{cls.__qualname__}"


@final
@dataclass
class CheckpointSave(_Arguments):
    """Argument of `CheckpointManager.save`: the iterator whose position to save.

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

    item: OrbaxCheckpointable


@final
@dataclass
class CheckpointRestore(_Arguments):
    """Argument of `CheckpointManager.restore`: the iterator to set to the saved position.

    `restore` also returns it.
    """

    item: OrbaxCheckpointable


_ocp.args.register_with_handler(CheckpointHandler, for_save=True)(CheckpointSave)
_ocp.args.register_with_handler(CheckpointHandler, for_restore=True)(CheckpointRestore)


def _iterator_of(
    item: OrbaxCheckpointable | None, args: CheckpointSave | CheckpointRestore | None
) -> OrbaxCheckpointable:
    return cast("CheckpointSave | CheckpointRestore", args).item if item is None else item
