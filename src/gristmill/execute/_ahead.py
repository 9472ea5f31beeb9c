"""Pull a stage in a background thread, a little ahead of the consumer."""

import threading
from collections import deque
from typing import final

from gristmill.execute._block import Block
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage

BUFFER_BLOCKS = 2
"""Blocks that wait for the consumer: one would do, the second evens out their varying times."""


@final
class Ahead:
    """A thread that pulls blocks until it has some in store, is closed, or the stream ends.

    Only the thread touches the stage, from the start until `close` returns.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._store: deque[Outcome | None] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="gristmill-ahead", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def pull(self) -> Outcome | None:
        """Give what comes next; the last thing, an error or the end, again and again."""
        with self._changed:
            while not self._store:
                self._changed.wait()
            outcome = self._store[0]
            if not _ends(outcome):
                self._store.popleft()
            self._changed.notify_all()
        return outcome

    def stop(self) -> None:
        """Tell the thread to end after the block it is at."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread, after the block it is at."""
        self.stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while self._hand_over(self._pull()):
            pass

    def _pull(self) -> Outcome | None:
        try:
            return self._stage.pull()
        except BaseException as error:  # whatever it is, the consumer raises it
            return Outcome(Block.empty(), error)

    def _hand_over(self, outcome: Outcome | None) -> bool:
        """Put a block into the store when there is room; say whether to go on.

        On return this thread holds nothing of it: its memory is free when the consumer is done.
        """
        with self._changed:
            while len(self._store) >= BUFFER_BLOCKS and not self._is_closed:
                self._changed.wait()
            self._store.append(outcome)
            self._changed.notify_all()
            return not (self._is_closed or _ends(outcome))


def _ends(outcome: Outcome | None) -> bool:
    return outcome is None or outcome.error is not None
