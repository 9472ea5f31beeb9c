"""What takes long to make, kept for the next time."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class Kept(Generic[T]):
    """Values by number: each made by one thread at a time, and kept while there is room.

    Those not used for longest go first, and the last one stays, however large it is.

    >>> kept = Kept[str](limit=10)
    >>> kept.get(1, lambda: ("one", 6)), kept.get(2, lambda: ("two", 6)), len(kept)
    ('one', 'two', 1)
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[int, tuple[T, int]] = OrderedDict()
        self._making: dict[int, Future[T]] = {}
        self._size = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, number: int, make: Callable[[], tuple[T, int]]) -> T:
        """Give a value; where there is none, `make` gives it and its size."""
        while True:
            with self._lock:
                if number in self._kept:
                    self._kept.move_to_end(number)
                    return self._kept[number][0]
                theirs = self._making.get(number)
                if theirs is None:
                    mine = self._making[number] = Future[T]()
                    break
            try:
                return theirs.result()
            except CancelledError:  # another thread could not make it: let this one say why
                continue
        try:
            value, size = make()
        except BaseException:
            with self._lock:
                del self._making[number]
            mine.cancel()
            raise
        with self._lock:
            self._kept[number] = value, size
            self._size += size
            while self._size > self._limit and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1][1]
            del self._making[number]
        mine.set_result(value)
        return value
