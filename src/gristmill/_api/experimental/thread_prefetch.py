"""Prefetching in a thread, for any iterator with a state."""

import copy
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, final

from gristmill._api.dataset.iter_dataset import IterDataset, ThreadPrefetchIterDataset
from gristmill._api.dataset.iterator import DatasetIterator
from gristmill._api.experimental.next_index import get_next_index, set_next_index
from gristmill._base.checks import as_int
from gristmill._base.threads.resumable_puller import (
    STOP_TIMEOUT_S,
    Producer,
    Pulled,
    ResumablePuller,
    take,
)
from gristmill._plan.nodes.base import stable_repr
from gristmill.errors import ClosedError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class CheckpointableIterator(Protocol[T_co]):
    """An iterator that can save and restore its position."""

    def __next__(self) -> T_co: ...

    def get_state(self) -> Any: ...

    def set_state(self, state: Any, /) -> None: ...


@final
class ThreadPrefetchDatasetIterator(DatasetIterator[T]):
    """Yields the elements of another iterator, computed ahead in a background thread.

    The thread uses the other iterator from then on; do not use it elsewhere. The state is that
    after the last element that `__next__` returned, independent of prefetched elements.

    >>> from gristmill import MapDataset
    >>> with ThreadPrefetchDatasetIterator(iter(MapDataset.range(3)), 2) as iterator:
    ...     list(iterator)
    [0, 1, 2]

    Args:
        parent: The iterator to read.
        prefetch_buffer_size: The maximum number of elements to compute ahead. With 0 there is no
            thread.

    Raises:
        PlanError: If `prefetch_buffer_size` is negative.
    """

    def __init__(self, parent: CheckpointableIterator[T], prefetch_buffer_size: int) -> None:
        super().__init__(parent if isinstance(parent, DatasetIterator) else ())
        self._size = as_int(
            "prefetch_buffer_size",
            prefetch_buffer_size,
            phrase="`prefetch_buffer_size` must be greater than or equal to 0",
        )
        self._iterator = parent
        self._pulled: Pulled[T, Any] = Pulled(copy.deepcopy(parent.get_state()))
        self._puller = ResumablePuller[tuple[T, Any], Any](
            _IteratorProducer(parent), buffer_size=self._size, name="gristmill-prefetch"
        )
        weakref.finalize(self, self._puller.end)
        self._is_closed = False

    def __repr__(self) -> str:
        return f"ThreadPrefetchDatasetIterator({stable_repr(self._iterator)}, {self._size})"

    def start_prefetch(self) -> None:
        if self._is_closed:
            raise ClosedError("The iterator was closed. Make a new one from the dataset.")
        if self._puller.needs_resync:
            self.set_state(self.get_state())
        if self._size:
            self._puller.start()

    def __next__(self) -> T:
        self.start_prefetch()
        if not self._pulled.waiting:
            self._pulled = Pulled(self._pulled.position, self._puller.pull())
            self._puller.needs_resync = False
        return take(self._pulled.waiting)

    def get_state(self) -> Any:
        return self._pulled.position

    def set_state(self, state: Any) -> None:
        self._move(lambda: self._puller.seek(state))

    def close(self) -> None:
        self._is_closed = True
        self._puller.reclaim(STOP_TIMEOUT_S)
        self._puller.end()
        super().close()

    def _move(self, move: Callable[[], None]) -> None:
        """Move the parent. If that fails or is interrupted, this iterator stays where it is."""
        self._puller.reclaim()
        move()
        self._pulled = Pulled(copy.deepcopy(self._iterator.get_state()))
        self._puller.needs_resync = False

    def _get_next_index(self) -> int:
        self.set_state(self.get_state())
        iterator: Any = self._iterator
        return get_next_index(iterator)

    def _set_next_index(self, index: int) -> None:
        iterator: Any = self._iterator
        self._move(lambda: set_next_index(iterator, index))


@final
class _IteratorProducer(Producer[tuple[T, Any], Any]):
    """The elements of an iterator, each with the state after it."""

    def __init__(self, iterator: CheckpointableIterator[T]) -> None:
        self._iterator = iterator

    def produce(self) -> tuple[T, Any]:
        element = next(self._iterator)
        return element, copy.deepcopy(self._iterator.get_state())

    def seek(self, position: Any) -> None:
        self._iterator.set_state(copy.deepcopy(position))


def multithread_prefetch(
    ds: IterDataset[T], num_threads: int, buffer_size: int, sequential_slice: bool = False
) -> IterDataset[T]:
    """Return the same stream. It exists for compatibility with Grain.

    In gristmill every stream computes elements ahead of the consumer, in as many threads as pay off
    within its `ReadOptions`. So this changes neither the stream nor its speed.

    >>> from gristmill import MapDataset
    >>> list(multithread_prefetch(MapDataset.range(3).to_iter_dataset(), 2, 4))
    [0, 1, 2]

    Args:
        ds: The stream to read.
        num_threads: In Grain, the number of threads.
        buffer_size: In Grain, the number of elements that each thread computes ahead.
        sequential_slice: Ignored. In Grain, it determines which records each thread reads.

    Raises:
        PlanError: If a number is negative.
        PlanTypeError: If one is not an integer.
    """
    del sequential_slice
    threads = as_int("num_threads", num_threads)
    size = as_int("buffer_size", buffer_size)
    if not threads:
        return ds
    return ThreadPrefetchIterDataset(ds, prefetch_buffer_size=threads * max(1, size))
