"""Run ahead of the consumer, in a thread: any iterator, and the way to the device."""

import copy
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, final

from gristmill._check import as_int
from gristmill._extras import load_extra
from gristmill.dataset._iter import IterDataset, ThreadPrefetchIterDataset
from gristmill.dataset._iterator import DatasetIterator, StreamIterator
from gristmill.dataset._next_index import get_next_index, set_next_index
from gristmill.dataset._spec import get_element_spec
from gristmill.errors import ClosedError

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
        self._pump: _Pump | None = None
        self._is_closed = False

    def start_prefetch(self) -> None:
        if self._is_closed:
            raise ClosedError("The iterator was closed. Make a new one from the dataset.")
        if self._pump is None and self._size:
            self._pump = _Pump(self._iterator, self._size)
            # The thread holds the pump, not this: else an iterator that nobody holds would go on.
            weakref.finalize(self, self._pump.stop)
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
        self._iterator.set_state(state)
        self._state = copy.deepcopy(self._iterator.get_state())

    def close(self) -> None:
        self._is_closed = True
        self._stop()
        super().close()

    def _stop(self) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.stop()
            pump.join()

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


@final
class _Pump:
    """A thread that takes elements from an iterator, and what it has taken."""

    def __init__(self, iterator: CheckpointableIterator[Any], size: int) -> None:
        self.error: BaseException | None = None
        """What stands after the elements, the end included."""
        self._iterator = iterator
        self._size = size
        self._made: deque[tuple[Any, Any]] = deque()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="gristmill-prefetch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def take(self) -> tuple[Any, Any]:
        with self._changed:
            self._changed.wait_for(lambda: self._made or self.error)
            if self._made:
                self._changed.notify_all()
                return self._made.popleft()
        assert self.error is not None
        raise self.error

    def _run(self) -> None:
        try:
            while self._has_room():
                element = next(self._iterator)
                state = copy.deepcopy(self._iterator.get_state())
                self._add(lambda made=(element, state): self._made.append(made))
        except BaseException as error:
            raised = error
            self._add(lambda: setattr(self, "error", raised))

    def _has_room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or len(self._made) < self._size)
            return not self._is_stopped

    def _add(self, change: Callable[[], Any]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()


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


def device_put(
    ds: IterDataset[Any], device: Any, *, cpu_buffer_size: int = 4, device_buffer_size: int = 2
) -> IterDataset[Any]:
    """Move each element to a device or sharding, ahead of the consumer.

    `device` is what `jax.device_put` takes. Up to `device_buffer_size` elements wait on the device,
    and up to `cpu_buffer_size` on the way to it.
    """
    jax = load_extra("jax", extra="jax", wanted_by="`device_put`")
    return _OnDevice(
        ds,
        lambda element: jax.device_put(element, device),
        as_int("cpu_buffer_size", cpu_buffer_size),
        as_int("device_buffer_size", device_buffer_size),
    )


@final
class _OnDevice(IterDataset[Any]):
    """Elements that are moved one at a time, so that only as many as asked for wait there."""

    def __init__(
        self,
        parent: IterDataset[Any],
        put: Callable[[Any], Any],
        cpu_buffer_size: int,
        device_buffer_size: int,
    ) -> None:
        super().__init__(parent)
        self._put = put
        self._sizes = cpu_buffer_size, device_buffer_size

    @property
    def _element_spec(self) -> Any:
        return get_element_spec(self._parent)

    def __iter__(self) -> DatasetIterator[Any]:
        on_host, on_device = self._sizes
        parent: DatasetIterator[Any] = self._parent.__iter__()
        if not isinstance(parent, StreamIterator):  # which runs ahead by itself
            parent = ThreadPrefetchDatasetIterator(parent, on_host)
        return ThreadPrefetchDatasetIterator(_Put(parent, self._put), on_device)


@final
class _Put(DatasetIterator[Any]):
    """A function of each element of another iterator."""

    def __init__(self, parent: DatasetIterator[Any], put: Callable[[Any], Any]) -> None:
        super().__init__(parent)
        self._put = put

    def __next__(self) -> Any:
        return self._put(next(self._parent))

    def get_state(self) -> dict[str, Any]:
        return self._parent.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        self._parent.set_state(state)

    def _get_next_index(self) -> int:
        return get_next_index(self._parent)

    def _set_next_index(self, index: int) -> None:
        set_next_index(self._parent, index)
