"""Pull items from a producer, in this thread or ahead of it in another, safely under Ctrl-C.

This is the interrupt-and-resume protocol of every iterator that may have a background thread.
`KeyboardInterrupt` may be raised in the consumer between any two bytecodes: after an item has left
the producer and before it reaches the user, while a thread starts, during a wait for its end. The
same iterator must then resume where it was, without losing or repeating an item. Five rules:

1. *The position is the consumer's.* Only the consumer knows which item it handed out last, and the
   position after it. The producer is ahead of that by the items that are prefetched or on their
   way.
2. *Mark before, clear after.* Every operation sets `needs_resync` before it touches anything. After
   `seek` and `reclaim` the consumer stores its new position, and then clears the mark. After `pull`
   it stores what it will hand out, with the positions around it, in one assignment, and then clears
   the mark: a `Pulled`, or an object with more positions. An interrupt leaves the mark set, and so
   does an exception of the producer.
3. *Hand out last.* `take` removes the item that it returns, and this is what moves the consumer's
   position. It calls no function in between, since calls are where CPython handles signals. What
   else belongs to an item, such as its line in a ledger, comes before, and does nothing the second
   time: until an item is taken, it is the next one.
4. *Resume from what is certain.* A consumer that finds the mark set seeks to its own position
   before it pulls again. So prefetched items are made again, and an item that failed is tried
   again.
5. *One owner at a time.* The consumer owns the producer until it starts a thread, and again after
   that thread was seen to end. Otherwise it calls nothing of the producer but `interrupt` and
   `close`. It takes no lock and joins no thread (see `background`). To continue elsewhere
   it abandons the thread, which ends by itself, and starts another one; the threads of a producer
   take turns. After `end` the last thread to leave the producer disposes of it: a file descriptor
   that is closed while a thread waits on it may soon be that of another file.

A consumer may also never come back: a traceback, or a variable of a notebook, holds it. So a thread
whose items are not taken for `idle_timeout_s` *parks*: it ends, and disposes of the producer. The
consumer, if it does come back, finds `is_parked`, and continues from its position with another
puller.
"""

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, final

from gristmill._base.threads.background import BackgroundPrefetcher

T = TypeVar("T")
P = TypeVar("P")

STOP_TIMEOUT_S = 1.0
"""How long to wait for a thread to end: a user's function that runs in it cannot be stopped."""


def take(waiting: list[T]) -> T:
    """Return the last of the items that wait to be handed out, and remove it.

    Ctrl-C comes before the removal, or after the return: there is no call, nor the start of a line,
    in between. The caller must be a `return` statement.

    >>> take(waiting := [7, 8]), waiting
    (8, [7])
    """
    item = waiting[-1]
    # fmt: off
    del waiting[-1]; return item  # noqa: E702
    # fmt: on


@final
class Pulled(Generic[T, P]):
    """The item to hand out next, until it is taken, and the positions of the consumer around it."""

    __slots__ = ("_after", "_before", "waiting")

    def __init__(self, before: P, *pulled: tuple[T, P]) -> None:
        """Hand out an item, or nothing.

        Args:
            before: The position of the consumer.
            pulled: The item, and the position after it.
        """
        self._before = before
        self.waiting: list[T] = [item for item, _ in pulled]
        """The item, or nothing if it was taken."""
        self._after = pulled[0][1] if pulled else before

    @property
    def position(self) -> P:
        """The position of the consumer."""
        return self._before if self.waiting else self._after


class Producer(ABC, Generic[T, P]):
    """Makes items one after the other, starting at a position. One thread at a time uses it."""

    @abstractmethod
    def produce(self) -> T:
        """Return the next item; raise `StopIteration` after the last one.

        After any other exception only `seek` may follow.
        """

    @abstractmethod
    def seek(self, position: P) -> None:
        """Continue from a position."""

    def interrupt(self) -> None:
        """Make `produce` in another thread return soon, if it waits. `seek` or `close` follows."""

    def close(self) -> None:
        """End whatever runs for it. Any thread may call this, also while another one produces."""

    def dispose(self) -> None:
        """Release everything, after `close`. The caller is the only one that uses it."""


@final
class ResumablePuller(Generic[T, P]):
    """Pulls items from a producer, which a background thread runs from `start` on.

    It holds no reference to its consumer. The consumer calls `end` from a `weakref.finalize`, so
    that the thread does not outlive it.
    """

    def __init__(
        self,
        producer: Producer[T, P],
        *,
        buffer_size: int,
        name: str,
        sleep_s: float = 0.0,
        idle_timeout_s: float | None = None,
    ) -> None:
        """Prepare to pull.

        Args:
            producer: Makes the items. It is for this object alone from now on.
            buffer_size: Maximum number of prefetched items, including the one that is being made.
            name: Name of the background thread.
            sleep_s: See `BackgroundPrefetcher`.
            idle_timeout_s: After this time without a `pull`, a thread that has nothing to do ends,
                and disposes of the producer. By default it never does.
        """
        self.producer = producer
        self.needs_resync = False
        """Whether the producer may be elsewhere than after the consumer's position."""
        self.is_owner = True
        """Whether the consumer, and no thread, has the producer: then `seek` takes effect at once,
        and raises if the position does not fit."""
        self._buffer_size = buffer_size
        self._name = name
        self._sleep_s = sleep_s
        self._idle_timeout_s = idle_timeout_s
        self._was_parked = False
        self._late_fate: dict[str, str] | None = None
        self._left_behind: BackgroundPrefetcher[T] | None = None
        self._prefetcher: BackgroundPrefetcher[T] | None = None
        self._made: deque[tuple[T] | None] = deque()
        """What a retired thread has made, each item in a tuple, and `None` for the end."""
        self._turn = threading.Lock()
        self._has_ended = False
        self._is_closed = False
        self._is_disposed = False

    @property
    def is_prefetching(self) -> bool:
        """Whether a background thread makes the items."""
        return self._prefetcher is not None

    @property
    def is_parked(self) -> bool:
        """Whether the thread has disposed of the producer: only `end` and `close` may follow.

        It does not become true after `seek` or `reclaim`, before the next `start`.
        """
        prefetcher, late_fate = self._prefetcher, self._late_fate
        return (
            self._was_parked
            or (prefetcher is not None and prefetcher.is_parked)
            or (late_fate is not None and late_fate.get("end") == "parked")
        )

    def pull(self) -> T:
        """Return the next item, or raise what the producer raised in its place.

        The caller clears `needs_resync` once it has stored the item. After the last one every call
        raises `StopIteration`, until `seek` or `reclaim`.

        Raises:
            ParkedError: The thread has ended by itself, see `is_parked`.
        """
        if self._has_ended:
            raise StopIteration
        self.needs_resync = True
        prefetcher = self._prefetcher
        try:
            if self._made:
                return self._take_made()
            return self.producer.produce() if prefetcher is None else prefetcher.take()
        except StopIteration:
            self._has_ended = True
            self.needs_resync = False  # it is where the consumer is: at the end
            raise

    def seek(self, position: P) -> None:
        """Continue from a position, without what was prefetched.

        A thread that has the producer is abandoned; `start` then has to be given the position. The
        caller clears `needs_resync` once it has stored the position.
        """
        self.needs_resync = True
        self._has_ended = False
        self._made.clear()
        if self.is_owner:
            self.producer.seek(position)
        elif self._prefetcher is not None:
            self._prefetcher.stop()
            self._was_parked = self._prefetcher.is_parked
            self._left_behind, self._prefetcher = self._prefetcher, None
            if not self._was_parked:
                self.producer.interrupt()

    def start(self, position: P | None = None) -> None:
        """Start a background thread, unless there is one or the items have ended.

        Args:
            position: Where the thread continues; by default, where the producer is.
        """
        if self._prefetcher is not None or self._has_ended:
            return
        needed_resync, self.needs_resync = self.needs_resync, True
        self.is_owner = False
        self._prefetcher = BackgroundPrefetcher(
            _produce_from(self.producer, position),
            self._buffer_size,
            name=self._name,
            sleep_s=self._sleep_s,
            turn=self._turn,
            after_turn=self._after_turn,
            idle_timeout_s=self._idle_timeout_s,
            on_idle=self._end_producer,
        )
        self._prefetcher.start()
        self.needs_resync = needed_resync

    def reclaim(self, timeout_s: float | None = None) -> None:
        """Stop the thread, if any, and take the producer back from it if it ends in time.

        Also from a thread that an earlier call has stopped, and that had not ended in time.

        The caller must seek next, or move the producer itself, since prefetched items are lost. If
        Ctrl-C ends the wait, the call can be repeated.

        Args:
            timeout_s: How long to wait at most for the thread; by default, until it ends.
        """
        self.needs_resync = True
        self._has_ended = False
        self._made.clear()
        left_behind = None if self.is_owner else self._left_behind
        prefetcher = self._prefetcher or left_behind
        if prefetcher is not None:
            prefetcher.stop()
            self._was_parked = prefetcher.is_parked
            if not self._was_parked:
                self.producer.interrupt()
            has_left = prefetcher.wait(timeout_s)
            self._left_behind = None if has_left else prefetcher
            self._prefetcher = None  # first: an owner must not pull from a thread
            self.is_owner = has_left

    def retire(self, timeout_s: float) -> None:
        """Stop the thread after the item that it is making, and pull what it has made first.

        The caller must seek next if `needs_resync` is set: the thread did not end in time, has
        parked, or the producer has raised. If Ctrl-C ends the wait, the call can be repeated.

        Args:
            timeout_s: How long to wait at most for the thread.
        """
        self.needs_resync = True
        prefetcher = self._prefetcher
        if prefetcher is None:
            return
        prefetcher.stop()
        self._was_parked = prefetcher.is_parked
        if self._was_parked:
            self._prefetcher = None
            return
        if not prefetcher.wait(timeout_s):
            self.producer.interrupt()
            self._prefetcher = None
            return
        rest = prefetcher.take_rest()
        self._prefetcher = None
        self.is_owner = True
        if rest is not None:
            self._made.extend(rest)
            self.needs_resync = False

    def _take_made(self) -> T:
        made = self._made.popleft()
        if made is None:
            raise StopIteration
        return made[0]

    def park_later(self) -> None:
        """Let the thread that did not end in time dispose of the producer when it does.

        Unless `keep` comes first: as in `BackgroundPrefetcher`, a dictionary decides in one step.
        """
        self._late_fate = {}
        left_behind = self._left_behind
        if left_behind is not None and left_behind.wait(0.0):
            self._park_if_asked()

    def keep(self) -> None:
        """Take back `park_later`, if it is not too late: see `is_parked`."""
        if self._late_fate is not None:
            self._late_fate.setdefault("end", "kept")

    def _park_if_asked(self) -> None:
        late_fate = self._late_fate
        if late_fate is not None and late_fate.setdefault("end", "parked") == "parked":
            self._end_producer()

    def end(self) -> None:
        """Stop the thread without waiting for it, and close the producer.

        The garbage collector may call this, in any thread.
        """
        # The thread and the prefetcher hold each other, and what was prefetched.
        prefetcher, self._prefetcher = self._prefetcher, None
        if prefetcher is not None:
            prefetcher.stop()
        self._end_producer()

    def _end_producer(self) -> None:
        self._is_closed = True
        self._made.clear()
        self.producer.close()
        self._dispose_if_closed()

    def close(self) -> None:
        """Stop the thread, close the producer and then wait for the thread, for a limited time."""
        prefetcher = self._prefetcher
        self.end()
        if prefetcher is not None:
            prefetcher.wait(STOP_TIMEOUT_S)

    def _after_turn(self) -> None:
        self._park_if_asked()
        self._dispose_if_closed()

    def _dispose_if_closed(self) -> None:
        """Dispose of the producer if it is closed and no thread is in it.

        Called by `end`, and by every thread after each of its turns: the last one finds it free.
        """
        if self._is_closed and self._turn.acquire(blocking=False):
            try:
                if not self._is_disposed:
                    self._is_disposed = True
                    self.producer.dispose()
            finally:
                self._turn.release()


def _produce_from(producer: Producer[T, P], position: P | None) -> Callable[[], T]:
    """Return the function that a thread calls for each item: the first call seeks."""

    def produce() -> T:
        nonlocal position
        if position is not None:
            producer.seek(position)
            position = None
        return producer.produce()

    return produce
