"""The epochs of a loader, one iterator for each."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from gristmill._api.loader.iterator import DataLoaderIterator
from gristmill._checkpoint.checkpointable import OrbaxCheckpointable
from gristmill._checkpoint.state import parse_body
from gristmill.errors import StateError

if TYPE_CHECKING:
    from gristmill._api.loader.loader import DataLoader


@final
class LoaderEpochs(OrbaxCheckpointable, Iterator[tuple[int, DataLoaderIterator]]):
    """An iterator over the epochs of a loader. `DataLoader.epochs` returns one.

    It yields the number of an epoch, and an iterator over the elements of that epoch. Its state is
    that of the current epoch's iterator. After `set_state`, the next epoch that it yields is the
    one of the state, continued from there. A loop after the last epoch begins with the first again.

    >>> from gristmill import load
    >>> loader = load(range(6), shuffle=True, seed=0, batch_size=3)
    >>> for epoch, batches in loader.epochs(2):
    ...     print(epoch, [batch.tolist() for batch in batches])
    0 [[0, 4, 1], [2, 5, 3]]
    1 [[5, 2, 3], [0, 4, 1]]

    Args:
        loader: The loader.
        num_epochs: The number of epochs.
    """

    _grain_class = "DataLoaderIterator"

    def __init__(self, loader: "DataLoader", num_epochs: int) -> None:
        self._loader = loader
        self._num_epochs = num_epochs
        self._next_epoch = 0
        self._current: DataLoaderIterator | None = None
        self._is_restored = False
        self._has_ended = False

    def __iter__(self) -> "LoaderEpochs":
        if self._has_ended:  # a second loop has all epochs again
            self._current, self._next_epoch, self._has_ended = None, 0, False
        return self

    def __repr__(self) -> str:
        return f"<LoaderEpochs: {self._next_epoch} of {self._num_epochs}, {self._loader!r}>"

    def __next__(self) -> tuple[int, DataLoaderIterator]:
        if not self._is_restored:
            self.close()
            if self._next_epoch >= self._num_epochs:
                self._has_ended = True
                raise StopIteration
            self._open(self._next_epoch)
        self._is_restored = False
        assert self._current is not None
        return self._next_epoch - 1, self._current

    def get_state(self) -> bytes:
        """Return the state of the current epoch: where its iterator is."""
        if self._current is None:
            self._open(0)
            self._is_restored = True
        assert self._current is not None
        return self._current.get_state()

    def set_state(self, state: bytes) -> None:
        """Continue in the epoch of a state, from the position of the state.

        Args:
            state: A state of these epochs, of the iterator of one of them, or of a feed of it.

        Raises:
            StateError: The state is corrupt, belongs to another pipeline, or not to an epoch.
        """
        epoch = parse_body(state).get("epoch")
        if type(epoch) is not int or epoch < 0:
            raise StateError(
                "The state is not one of an epoch. Restore it into `iter(loader)`, or pass a state "
                "of `loader.epoch(e)` or `loader.epochs(n)`."
            )
        iterator = iter(self._loader.epoch(epoch))
        iterator.set_state(state)
        self.close()
        self._current, self._next_epoch, self._is_restored = iterator, epoch + 1, True
        self._has_ended = False

    def start_prefetch(self) -> None:
        """Start to compute elements of the current epoch in the background."""
        if self._current is not None:
            self._current.start_prefetch()

    def close(self) -> None:
        """Stop all background work of the current epoch."""
        if self._current is not None:
            self._current.close()

    def _open(self, epoch: int) -> None:
        self._current = iter(self._loader.epoch(epoch))
        self._next_epoch = epoch + 1
