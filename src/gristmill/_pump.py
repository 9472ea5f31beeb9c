"""Make things in a background thread, a few ahead of who takes them.

Ctrl-C may hit who takes anywhere, so no lock is held there: it speaks with the thread through
`SimpleQueue`s.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, final

from gristmill._background import Background

T = TypeVar("T")

_LOOK_AGAIN_S = 0.1
_MANY_NAPS = 4


@final
class Pump(Generic[T]):
    """A thread that calls a function again and again, until it raises or is told to stop.

    >>> numbers = iter(range(3))
    >>> pump = Pump(numbers.__next__, 2, name="example")
    >>> pump.start()
    >>> pump.take(), pump.take(), pump.take()
    (0, 1, 2)
    >>> pump.take()
    Traceback (most recent call last):
    StopIteration
    """

    def __init__(self, make: Callable[[], T], size: int, *, name: str, nap_s: float = 0.0) -> None:
        """Make at most `size` things that nobody has taken, the one under way included.

        While some of them wait, and are taken at intervals much longer than that, there is no
        hurry: before it makes another the thread naps, so that who has just taken one has the
        interpreter to itself for what it does with it.
        """
        self.error: BaseException | None = None
        """What the function raised in the end, its StopIteration included, once that was met."""
        self._ready: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(size):
            self._room.put(None)
        self._is_stopped = threading.Event()
        self._life = _Life()
        self._thread = Background(
            _run,
            (make, self._room, self._ready, self._is_stopped, self._life, nap_s),
            name=name,
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def take(self) -> T:
        """Give what comes next, or raise what stands in its place: that again and again."""
        if self.error is not None:
            raise self.error
        made: Any
        made, self.error = get(self._ready)
        if self.error is not None:
            raise self.error
        self._room.put(None)
        return made

    def stop(self) -> None:
        """Tell the thread to end after what it is at."""
        self._is_stopped.set()
        self._room.put(None)

    def wait(self, *, seconds: float | None = None) -> None:
        """Wait until the thread, which was told to stop, has ended, or for so long at most.

        No function can be stopped. Ctrl-C may end the wait, which can then be done again.
        """
        if threading.current_thread() is self._thread:
            return
        deadline = float("inf") if seconds is None else time.monotonic() + seconds
        # One that has not begun by now will find that it is to stop, and make nothing.
        while self._life.has_begun and not self._life.has_ended:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            with contextlib.suppress(Empty):
                self._life.end.get(timeout=min(left_s, _LOOK_AGAIN_S))


@final
class _Life:
    """How far a thread is."""

    def __init__(self) -> None:
        self.has_begun = False
        self.has_ended = False
        self.end: SimpleQueue[None] = SimpleQueue()
        """Wakes who waits for that."""


def _run(
    make: Callable[[], T],
    room: "SimpleQueue[None]",
    ready: "SimpleQueue[tuple[T | None, BaseException | None]]",
    is_stopped: threading.Event,
    life: _Life,
    nap_s: float,
) -> None:
    """Fill the store whenever there is room; holds nothing of what it has made."""
    life.has_begun = True
    taken_at = 0.0
    while True:
        room.get()
        before, taken_at = taken_at, time.monotonic()
        if taken_at - before > _MANY_NAPS * nap_s > 0 and not ready.empty():
            is_stopped.wait(nap_s)
        if is_stopped.is_set():
            break
        try:
            ready.put((make(), None))
        except BaseException as error:  # whatever it is, who takes raises it
            if not is_stopped.is_set():
                ready.put((None, error))
            break
    life.has_ended = True
    life.end.put(None)


def get(queue: "SimpleQueue[T]") -> T:
    """Wait for an item; a Ctrl-C that comes just before the wait is seen at the next look."""
    while True:
        try:
            return queue.get(timeout=_LOOK_AGAIN_S)
        except Empty:
            continue
