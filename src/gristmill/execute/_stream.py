"""A running plan: elements one by one, and the place to go on from.

Ctrl-C may come between any two steps of this, up to where an element is handed over. What is handed
out is therefore replaced as a whole (`_Handout`), and while a block is on its way the stream is
*unsure*: the next time it needs one it begins anew at the last place it is sure of.
"""

import math
import threading
import time
import weakref
from functools import cache
from typing import Any, final

import numpy as np

from gristmill.errors import ClosedError
from gristmill.execute._ahead import Ahead
from gristmill.execute._open import num_flat_maps, open_stages
from gristmill.execute._outcome import Outcome
from gristmill.execute._track import Cursor
from gristmill.plan import Node
from gristmill.types import Element

BUSY_SHARE = 0.5
"""A thread pays from when the consumer is busy for about half the time that a block takes."""


@final
class Stream:
    """The elements of a plan from a cursor on.

    With `runs_ahead`, a background thread makes the next ones while the consumer is busy: from
    `start` on, or as soon as the consumer is seen to be busy. Where it does nothing but take
    elements there is nothing to gain, and two threads that take turns at the interpreter lose a
    quarter. After an error the stream stands before the element that failed: the next try
    computes it anew.
    """

    def __init__(self, plan: Node, *, runs_ahead: bool) -> None:
        _keep_memory_warm()
        self._stage = open_stages(plan)
        self._turn = threading.Lock()
        self._is_stage_ours = True  # until a thread has had it: from then on only threads do
        self._runs_ahead = runs_ahead
        self._ahead: Ahead | None = None
        self._stop_at_collection: weakref.finalize[..., Any] | None = None
        self._handout = _Handout((0,) * (1 + num_flat_maps(plan)))
        self._is_unsure = False
        self._is_closed = False
        self._making_seconds = math.inf
        self._handed_over_at = time.perf_counter()

    @property
    def cursor(self) -> Cursor:
        """Where the stream goes on: after the last element that was handed out."""
        return self._handout.cursor

    def __next__(self) -> Element:
        if not self._handout.waiting:
            self._refill()
        return self._handout.waiting.pop()

    def seek(self, cursor: Cursor) -> None:
        """Go on from a cursor."""
        self._is_unsure = True
        if self._is_stage_ours:
            self._stage.seek(cursor)
        else:
            self._leave()
        self._handout = _Handout(cursor)
        self._is_unsure = False

    def start(self) -> None:
        """Begin to run ahead, if that is how this stream runs."""
        if self._runs_ahead and self._ahead is None and not self._is_closed:
            was_unsure, self._is_unsure = self._is_unsure, True
            self._is_stage_ours = False
            self._ahead = Ahead(self._stage, self._handout.end, self._turn)
            # Without this the thread would outlive a stream that nobody holds any more.
            self._stop_at_collection = weakref.finalize(self, self._ahead.stop)
            self._ahead.start()
            self._is_unsure = was_unsure

    def close(self) -> None:
        """End what runs in the background. The cursor can still be read."""
        self._is_closed = True
        self._handout = _Handout(self.cursor)
        if self._ahead is not None:
            self._ahead.close()
        self._leave()

    def _refill(self) -> None:
        """Get the next block, or raise what stands in its place."""
        if self._is_closed:
            raise ClosedError("The iterator was closed. Make a new one from the loader.")
        if self._is_unsure:
            self.seek(self.cursor)
        busy_share = (time.perf_counter() - self._handed_over_at) / self._making_seconds
        if not self._is_stage_ours or busy_share >= BUSY_SHARE:
            self.start()
        self._is_unsure = True
        asked_at = time.perf_counter()
        while not self._handout.waiting:
            error = self._handout.error
            if error is not None:
                self.seek(self.cursor)
                raise error
            outcome = self._pull()
            if outcome is None:
                self._is_unsure = False
                raise StopIteration
            self._handout = _Handout(self.cursor, outcome)
        self._is_unsure = False
        self._handed_over_at = time.perf_counter()
        self._making_seconds = max(self._handed_over_at - asked_at, 1e-9)

    def _pull(self) -> Outcome | None:
        return self._stage.pull() if self._ahead is None else self._ahead.pull()

    def _leave(self) -> None:
        """Let the background thread end by itself."""
        if self._ahead is not None:
            self._ahead.stop()
            if self._stop_at_collection is not None:
                self._stop_at_collection.detach()
            self._ahead = None


@final
class _Handout:
    """A block on its way to the user, and the cursor before it."""

    __slots__ = ("_start", "_track", "error", "waiting")

    def __init__(self, start: Cursor, outcome: Outcome | None = None) -> None:
        self._start = start
        self._track = None if outcome is None else outcome.block.track
        self.error = None if outcome is None else outcome.error
        self.waiting: list[Element] = [] if outcome is None else outcome.block.rows()[::-1]

    @property
    def cursor(self) -> Cursor:
        """Where to go on after the last element that was taken from `waiting`."""
        track = self._track
        if track is None or len(track) == len(self.waiting):
            return self._start
        return track.after(len(track) - len(self.waiting) - 1)

    @property
    def end(self) -> Cursor:
        """Where to go on after all of them."""
        track = self._track
        return self._start if track is None or not len(track) else track.after(len(track) - 1)


@cache
def _keep_memory_warm() -> None:
    """Make the allocator keep the memory of batches that are gone for those that come.

    By default glibc returns free memory beyond 128 kB to the system, and a batch of 100 kB in
    fresh pages takes three times as long as in used ones. It keeps as much as twice the largest
    block that was ever freed, so one is freed here, without having been touched.
    """
    np.empty(16 << 20, dtype=np.uint8)
