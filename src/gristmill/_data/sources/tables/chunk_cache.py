"""A cache of loaded chunks with a size limit."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class ChunkCache(Generic[T]):
    """Caches values by number, up to a total size. Threads may share it.

    The least recently used values are evicted first. The most recently used one always stays,
    however large it is. Threads that ask for a missing value at the same time wait for one of them
    to load it.

    >>> cache = ChunkCache[str](max_bytes=10)
    >>> cache.get(1, lambda: ("one", 6)), cache.get(2, lambda: ("two", 6)), len(cache)
    ('one', 'two', 1)

    Args:
        max_bytes: The total size of the cached values.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._cached: OrderedDict[int, tuple[T, int]] = OrderedDict()
        self._loading: dict[int, Future[T]] = {}
        self._num_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, number: int, load: Callable[[], tuple[T, int]]) -> T:
        """Return a value, and load it first if it is not cached.

        Args:
            number: The key of the value.
            load: Returns the value and its size in bytes. An error is raised to the thread that
                called it; the threads that wait for the value then load it themselves.
        """
        while True:
            with self._lock:
                if number in self._cached:
                    self._cached.move_to_end(number)
                    return self._cached[number][0]
                other = self._loading.get(number)
                if other is None:
                    own = self._loading[number] = Future[T]()
                    break
            try:
                return other.result()
            except CancelledError:  # the other thread failed: try again, to raise the error here
                continue
        try:
            value, num_bytes = load()
        except BaseException:
            with self._lock:
                del self._loading[number]
            own.cancel()
            raise
        with self._lock:
            self._cached[number] = value, num_bytes
            self._num_bytes += num_bytes
            while self._num_bytes > self._max_bytes and len(self._cached) > 1:
                self._num_bytes -= self._cached.popitem(last=False)[1][1]
            del self._loading[number]
        own.set_result(value)
        return value
