"""Background threads that end before the interpreter does.

A thread that is in native code when the interpreter exits is killed there. C++ code, such as
PyTorch's, then aborts the whole process ("terminate called without an active exception").
"""

import contextlib
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, final

STOP_TIMEOUT_S = 2.0
"""Limit to the wait at interpreter exit: a function that runs in a thread cannot be stopped."""


@final
class Background(threading.Thread):
    """A daemon thread that the interpreter waits for at exit, for a limited time.

    The object that starts one must stop it with a `weakref.finalize`, which runs when the owner is
    garbage collected or at interpreter exit, whichever comes first.
    """

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...] = (), *, name: str):
        super().__init__(target=target, args=args, name=name, daemon=True)
        self.role = name
        """Its first name: a thread has another one while it reads records."""


def _join_all() -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    try:
        for thread in threading.enumerate():
            if isinstance(thread, Background):
                thread.join(max(0.0, deadline - time.monotonic()))
    except KeyboardInterrupt:
        return  # a second Ctrl-C: the user does not want to wait


# Registered at import, so it runs after all other finalizers: `weakref` calls the newest first.
weakref.finalize(Background, _join_all)


T = TypeVar("T")

_POLL_INTERVAL_S = 0.1

_MIN_SLEEPS_BETWEEN_TAKES = 4
"""The thread sleeps only where the consumer takes items at intervals of more than this many sleeps:
otherwise the sleep would slow it down."""


@final
class _StoppedError(Exception):
    """Replaces an exception that is not taken."""


@final
class ParkedError(Exception):
    """The thread of a prefetcher has ended by itself, because no item was taken for some time."""


@final
class BackgroundPrefetcher(Generic[T]):
    """Calls a function repeatedly in a thread, until it raises or the prefetcher is stopped.

    `StopIteration` ends the items. Any other exception is raised in the consumer, in place of the
    item; after it the items have ended, as in a generator.

    The thread keeps no reference to an item it has made, so the item's memory is free as soon as
    the consumer is done with it. Nor does it hold the consumer: an iterator that owns a prefetcher
    can be garbage collected while the thread runs, and stops it then.

    >>> prefetcher = BackgroundPrefetcher(iter(range(3)).__next__, 2, name="example")
    >>> prefetcher.start()
    >>> prefetcher.take(), prefetcher.take(), prefetcher.take()
    (0, 1, 2)
    >>> prefetcher.take()
    Traceback (most recent call last):
    StopIteration
    """

    def __init__(
        self,
        make: Callable[[], T],
        buffer_size: int,
        *,
        name: str,
        sleep_s: float = 0.0,
        turn: "threading.Lock | None" = None,
        after_turn: Callable[[], object] = lambda: None,
        idle_timeout_s: float | None = None,
        on_idle: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare a thread, without starting it.

        Args:
            make: Returns the next item. Called by the thread only.
            buffer_size: Maximum number of items that are made and not taken, including the one
                that is being made.
            name: Name of the thread.
            sleep_s: How long the thread sleeps before it makes an item while others are ready and
                the consumer takes them slowly. A consumer that has just taken an item then has the
                interpreter to itself.
            turn: Held during each call of `make`. Prefetchers that share it call their functions
                one at a time.
            after_turn: Called by the thread after each turn, without holding it.
            idle_timeout_s: If no item is taken for this long while the buffer is full, the thread
                ends and drops the items: `take` raises `ParkedError`. By default it waits forever.
            on_idle: Called by the thread when it ends for that reason.
        """
        self._make = make
        self._sleep_s = sleep_s
        self._turn = threading.Lock() if turn is None else turn
        self._after_turn = after_turn
        self._idle_timeout_s = idle_timeout_s
        self._on_idle = on_idle
        self._fate: dict[str, str] = {}  # `setdefault` decides, in one step, what came first
        # An item in a tuple, the exception to raise instead, or None for the end.
        self._ready: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(buffer_size):
            self._room.put(None)
        self._is_exhausted = False
        self._is_stopped = False
        self._has_begun = False
        self._has_ended = False
        self._ended: SimpleQueue[None] = SimpleQueue()  # wakes `wait`
        self._thread = Background(self._run, name=name)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def take(self) -> T:
        """Return the next item, or raise what the function raised in its place.

        After the last item, and after an exception, every call raises `StopIteration`. A call that
        Ctrl-C interrupts may lose an item: the caller must then stop this prefetcher.

        Raises:
            ParkedError: The thread has ended by itself. Items that were not taken are lost.
        """
        if self._is_exhausted:
            raise StopIteration
        made = _get(self._ready)
        if self.is_parked:  # items before this one may be lost
            raise ParkedError
        if isinstance(made, tuple):
            self._room.put(None)
            return made[0]
        self._is_exhausted = True
        if made is None:
            raise StopIteration  # a new one each time: a traceback would keep the caller's frames
        try:
            raise made
        finally:
            del made  # else the exception and this frame would hold each other

    def take_rest(self) -> list[tuple[T] | None] | None:
        """Return the items that were made and not taken, after `stop` and `wait`.

        Returns:
            Each item in a tuple, and `None` after the last one if the items have ended. `None`
            instead of the list if the function raised: what it raised is lost.
        """
        rest: list[tuple[T] | None] = []
        while not self._ready.empty():
            made = self._ready.get()
            if isinstance(made, BaseException):
                return None
            rest.append(made)
        return rest

    def stop(self) -> None:
        """Make the thread end after the current call of the function.

        From then on `is_parked` does not change.
        """
        self._fate.setdefault("end", "stopped")
        self._is_stopped = True
        self._room.put(None)

    @property
    def is_parked(self) -> bool:
        """Whether the thread has ended by itself, because no item was taken for some time."""
        return self._fate.get("end") == "parked"

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the thread, which must have been stopped, calls the function no more.

        Ctrl-C may end the wait, which can then be repeated.

        Args:
            timeout_s: How long to wait at most: a function that runs cannot be stopped.

        Returns:
            Whether the thread has finished. It has not if the function itself calls this.
        """
        if threading.current_thread() is self._thread:
            return False
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        # A thread that has not begun by now will see that it is stopped, and make nothing.
        while self._has_begun and not self._has_ended:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            with contextlib.suppress(Empty):
                self._ended.get(timeout=min(left_s, _POLL_INTERVAL_S))
        return True

    def _run(self) -> None:
        self._has_begun = True
        taken_at = 0.0
        has_more = True
        while has_more:
            try:
                self._room.get(timeout=self._idle_timeout_s)
            except Empty:
                if self._park():
                    break
                continue
            before, taken_at = taken_at, time.monotonic()
            is_slow = taken_at - before > _MIN_SLEEPS_BETWEEN_TAKES * self._sleep_s > 0
            if is_slow and not self._ready.empty():
                time.sleep(self._sleep_s)
            has_more = self._make_one()
            self._after_turn()
        self._has_ended = True
        self._ended.put(None)

    def _park(self) -> bool:
        """Drop the items and return `True`, unless the prefetcher was stopped just now."""
        if self._fate.setdefault("end", "parked") != "parked":
            return False
        with contextlib.suppress(Empty):
            while True:
                self._ready.get_nowait()
        try:
            self._on_idle()
        finally:
            self._ready.put(None)  # wakes a consumer that has come in the meantime
        return True

    def _make_one(self) -> bool:
        """Make an item, and return whether there may be more.

        On return this thread holds no reference to the item.
        """
        with self._turn:
            if self._is_stopped:  # maybe while it waited for its turn
                return False
            try:
                self._ready.put((self._make(),))
                return True
            except StopIteration:
                self._ready.put(None)
            except BaseException as error:  # the consumer raises it, whatever it is
                # Once stopped it is not taken: then nothing is to hold its frames and their items.
                self._ready.put(_StoppedError() if self._is_stopped else error)
        return False


def _get(queue: "SimpleQueue[T]") -> T:
    """Wait for an item. A Ctrl-C right before the wait is handled after one poll interval."""
    while True:
        try:
            return queue.get(timeout=_POLL_INTERVAL_S)
        except Empty:
            continue
