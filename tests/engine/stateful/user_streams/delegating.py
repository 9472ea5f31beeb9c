"""A stream whose `set_slice` calls that of what it reads, for Grain and gristmill."""

from typing import Any


def delegating(grain_like: Any) -> Any:
    """Return a class of streams that add 100 to the elements of their parent."""

    class PlusIterator(grain_like.DatasetIterator):
        def __next__(self) -> Any:
            return next(self._parent) + 100

        def get_state(self) -> Any:
            return self._parent.get_state()

        def set_state(self, state: Any) -> None:
            self._parent.set_state(state)

    class Plus(grain_like.IterDataset):
        def __iter__(self) -> Any:
            return PlusIterator(self._parent.__iter__())

        def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
            self._parent.set_slice(sl, sequential_slice)

    return Plus
