"""Run ahead of the consumer, in a thread, whatever the iterator."""

import copy
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, final

from gristmill._check import as_int
from gristmill._pump import Pump
from gristmill.dataset._iter import IterDataset, ThreadPrefetchIterDataset
from gristmill.dataset._iterator import DatasetIterator
from gristmill.dataset._next_index import get_next_index, set_next_index
from gristmill.errors import ClosedError

PATIENCE_SECONDS = 1.0
"""How long to wait for a function of the user's to end before closing what it runs on."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class CheckpointableIterator(Protocol[T_co]):
    """An iterator that can tell its state and go on from one."""

    def __next__(self) -> T_co: ...

    def get_state(self) -> Any: ...

    def set_state(self, state: Any, /) -> None: ...


@final
class ThreadPrefetchDatasetIterator(DatasetIterator[T]):
    """The elements of another iterator, up to `prefetch_buffer_size` of them made ahead.

    The other iterator is for the thread alone from then on. The state is that after the last
    element that was handed out, whatever was made ahead.

    >>> from gristmill.dataset import MapDataset
    >>> ahead = ThreadPrefetchDatasetIterator(iter(MapDataset.range(3)), 2)
    >>> list(ahead)
    [0, 1, 2]
    """

    def __init__(self, parent: CheckpointableIterator[T], prefetch_buffer_size: int) -> None:
        super().__init__(parent if isinstance(parent, DatasetIterator) else ())
        self._iterator = parent
        self._size = as_int("prefetch_buffer_size", prefetch_buffer_size)
        self._state: Any = copy.deepcopy(parent.get_state())
        self._pump: Pump[tuple[T, Any]] | None = None
        self._stop_at_last: Any = None
        self._is_closed = False

    def start_prefetch(self) -> None:
        if self._is_closed:
            raise ClosedError("The iterator was closed. Make a new one from the dataset.")
        if self._pump is None and self._size:
            self._pump = Pump(_taker(self._iterator), self._size, name="gristmill-prefetch")
            # The thread holds the pump, not this: else an iterator that nobody holds would go on.
            self._stop_at_last = weakref.finalize(self, self._pump.stop)
            self._pump.start()

    def __next__(self) -> T:
        self.start_prefetch()
        if self._pump is None:
            element = next(self._iterator)
            self._state = copy.deepcopy(self._iterator.get_state())
            return element
        try:
            element, self._state = self._pump.take()
        except BaseException as error:
            if error is self._pump.error:  # the thread has ended: the next try begins anew
                self._pump = None
            raise
        return element

    def get_state(self) -> Any:
        return self._state

    def set_state(self, state: Any) -> None:
        self._stop()
        try:
            self._iterator.set_state(state)
        except BaseException:  # what was made ahead is to come again
            self._iterator.set_state(copy.deepcopy(self._state))
            raise
        self._state = copy.deepcopy(self._iterator.get_state())

    def close(self) -> None:
        self._is_closed = True
        self._stop(PATIENCE_SECONDS)
        super().close()

    def _stop(self, patience_s: float | None = None) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.stop()
            pump.wait(seconds=patience_s)
            self._stop_at_last.detach()

    def _get_next_index(self) -> int:
        iterator: Any = self._iterator
        self._stop()
        iterator.set_state(copy.deepcopy(self._state))
        return get_next_index(iterator)

    def _set_next_index(self, index: int) -> None:
        iterator: Any = self._iterator
        self._stop()
        set_next_index(iterator, index)
        self._state = copy.deepcopy(iterator.get_state())


def _taker(iterator: CheckpointableIterator[T]) -> Callable[[], tuple[T, Any]]:
    """Give the function that takes the next element, and the state after it."""

    def take() -> tuple[T, Any]:
        element = next(iterator)
        return element, copy.deepcopy(iterator.get_state())

    return take


def multithread_prefetch(
    ds: IterDataset[T], num_threads: int, buffer_size: int, sequential_slice: bool = False
) -> IterDataset[T]:
    """Let a dataset run ahead in threads. The stream is the same, whatever their number.

    How many threads pay is found by measuring; `sequential_slice`, by which Grain deals records to
    its threads, has nothing to change here.
    """
    del sequential_slice
    threads = as_int("num_threads", num_threads)
    size = as_int("buffer_size", buffer_size)
    if not threads:
        return ds
    return ThreadPrefetchIterDataset(ds, prefetch_buffer_size=threads * max(1, size))
