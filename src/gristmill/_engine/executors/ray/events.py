"""Event queue: what Ray's threads report to the thread that pulls the stream."""

import time
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, final

POLL_S = 0.5
"""How often a pool that waits for events looks at the cluster."""

REPLACE_POLL_S = 0.02
"""The same while an actor, or the broker, waits to be replaced."""

T = TypeVar("T")


@final
class EventQueue(Generic[T]):
    """Events in the order in which they happened. Any thread may add one, without a lock.

    >>> queue = EventQueue[str]()
    >>> queue.put("done")
    >>> queue.wake()
    >>> queue.take(1.0)
    (['done'], True)
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[T | None] = SimpleQueue()

    def put(self, event: T) -> None:
        """Add an event."""
        self._queue.put(event)

    def wake(self) -> None:
        """Let the thread that waits, or will wait next, return."""
        self._queue.put(None)

    def take(self, timeout_s: float) -> tuple[list[T], bool]:
        """Wait for an event; return all there are, and whether `wake` was called."""
        events: list[T] = []
        is_woken = False
        try:
            event = (
                self._queue.get(timeout=timeout_s) if timeout_s > 0 else self._queue.get_nowait()
            )
            while True:
                if event is None:
                    is_woken = True
                else:
                    events.append(event)
                event = self._queue.get_nowait()
        except Empty:
            return events, is_woken

    def wait_until_woken(self, timeout_s: float) -> None:
        """Wait for `wake`, and leave the events in the queue."""
        deadline = time.monotonic() + timeout_s
        kept: list[T] = []
        is_woken = False
        while not is_woken and (remaining_s := deadline - time.monotonic()) > 0:
            events, is_woken = self.take(remaining_s)
            kept += events
        for event in kept:
            self._queue.put(event)
