"""Pull a stage in a background thread, a little ahead of the consumer.

Ctrl-C may hit the consumer anywhere, so it neither takes a lock (it would be left locked) nor joins
a thread (an interrupted join makes CPython 3.11 forget that the thread runs). It speaks with the
thread through `SimpleQueue`s, and to begin at another place it leaves the old thread to end by
itself and starts a new one. The threads of a stream take turns at its stage.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import final

from gristmill._background import Background
from gristmill._pump import get
from gristmill.execute._block import Block
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._track import Cursor

BUFFER_BLOCKS = 2
"""Blocks that wait for the consumer: one would do, the second evens out their varying times."""

PATIENCE_SECONDS = 1.0
"""How long to wait for a thread to end: there is no way to stop a function in it."""


@final
class Ahead:
    """A thread that pulls blocks until it has some in store, is stopped, or the stream ends."""

    def __init__(
        self,
        stage: Stage,
        cursor: Cursor,
        turn: threading.Lock,
        after_turn: Callable[[], object] = lambda: None,
    ) -> None:
        self._stage = stage
        self._after_turn = after_turn
        self._cursor: Cursor | None = cursor
        self._turn = turn
        self._ready: SimpleQueue[Outcome | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(BUFFER_BLOCKS):
            self._room.put(None)
        self._is_stopped = False
        self._has_ended = False
        self._end: SimpleQueue[None] = SimpleQueue()
        self._thread = Background(self._run, name="gristmill-ahead")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def pull(self) -> Outcome | None:
        """Give what comes next; the last thing, an error or the end, again and again."""
        outcome = get(self._ready)
        if _ends(outcome):
            self._ready.put(outcome)
        self._room.put(None)
        return outcome

    def stop(self) -> None:
        """Tell the thread to end after the block it is at."""
        self._is_stopped = True
        self._room.put(None)

    def wait(self) -> bool:
        """Wait until the thread has ended, but not for a user's function that takes very long.

        Says whether it has.
        """
        if self._thread.ident is None or threading.current_thread() is self._thread:
            return False
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._has_ended and time.monotonic() < deadline:
            with contextlib.suppress(Empty):
                self._end.get(timeout=0.1)
        return self._has_ended

    def _run(self) -> None:
        while self._hand_over(self._pull()):
            self._after_turn()
        self._after_turn()
        self._has_ended = True
        self._end.put(None)

    def _pull(self) -> Outcome | None:
        with self._turn:
            if self._is_stopped:
                return None
            try:
                if self._cursor is not None:
                    self._stage.seek(self._cursor)
                    self._cursor = None
                return self._stage.pull()
            except BaseException as error:  # whatever it is, the consumer raises it
                if self._is_stopped:  # its frames hold this object, which holds what was made
                    error = error.with_traceback(None)
                return Outcome(Block.empty(), error)

    def _hand_over(self, outcome: Outcome | None) -> bool:
        """Put a block into the store when there is room; say whether to go on.

        On return this thread holds nothing of it: its memory is free when the consumer is done.
        """
        self._room.get()
        self._ready.put(outcome)
        return not (self._is_stopped or _ends(outcome))


def _ends(outcome: Outcome | None) -> bool:
    return outcome is None or outcome.error is not None
