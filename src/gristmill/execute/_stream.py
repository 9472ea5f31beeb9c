"""A running plan: elements one by one, and the place to go on from."""

import weakref
from functools import cache
from typing import final

import numpy as np

from gristmill.errors import ClosedError
from gristmill.execute._ahead import Ahead
from gristmill.execute._open import num_flat_maps, open_stages
from gristmill.execute._outcome import Outcome
from gristmill.execute._track import Cursor, Track
from gristmill.plan import Node
from gristmill.types import Element


@final
class Stream:
    """The elements of a plan from a cursor on.

    With `runs_ahead`, a background thread makes the next ones while the consumer is busy. After an
    error the stream stands before the element that failed: the next try computes it anew.
    """

    def __init__(self, plan: Node, *, runs_ahead: bool) -> None:
        _keep_memory_warm()
        self._stage = open_stages(plan)
        self._runs_ahead = runs_ahead
        self._ahead: Ahead | None = None
        self._stop_at_collection: weakref.finalize[..., Stream] | None = None
        self._is_closed = False
        self._start: Cursor = (0,) * (1 + num_flat_maps(plan))
        self._track: Track | None = None
        self._waiting: list[Element] = []  # of the current block, last first
        self._error: BaseException | None = None
        self._is_unsure = False

    @property
    def cursor(self) -> Cursor:
        """Where the stream goes on: after the last element that was handed out."""
        handed_out = 0 if self._track is None else len(self._track) - len(self._waiting)
        if self._track is None or handed_out == 0:
            return self._start
        return self._track.after(handed_out - 1)

    def __next__(self) -> Element:
        if not self._waiting:
            self._refill()
        return self._waiting.pop()

    def seek(self, cursor: Cursor) -> None:
        """Go on from a cursor."""
        self._halt()
        self._start, self._track, self._waiting, self._error = cursor, None, [], None
        self._stage.seek(cursor)
        self._is_unsure = False

    def start(self) -> None:
        """Begin to run ahead, if that is how this stream runs."""
        if self._runs_ahead and self._ahead is None and not self._is_closed:
            self._ahead = Ahead(self._stage)
            # Without this the thread would outlive a stream that nobody holds any more.
            self._stop_at_collection = weakref.finalize(self, self._ahead.stop)

    def close(self) -> None:
        """End what runs in the background. The cursor can still be read."""
        self._start, self._track, self._waiting = self.cursor, None, []
        self._halt()
        self._is_closed = True

    def _refill(self) -> None:
        """Get the next block, or raise what stands in its place."""
        if self._is_closed:
            raise ClosedError("The iterator was closed. Make a new one from the loader.")
        if self._is_unsure:
            self.seek(self.cursor)
        self._start, self._track = self.cursor, None
        self._is_unsure = True  # until all is in place: Ctrl-C may come at any moment
        while not self._waiting:
            if self._error is not None:
                error = self._error
                self.seek(self._start)
                raise error
            outcome = self._pull()
            if outcome is None:
                self._is_unsure = False
                raise StopIteration
            self._error = outcome.error
            if len(outcome.block):
                self._track = outcome.block.track
                self._waiting = outcome.block.rows()[::-1]
        self._is_unsure = False

    def _pull(self) -> Outcome | None:
        self.start()
        return self._stage.pull() if self._ahead is None else self._ahead.pull()

    def _halt(self) -> None:
        if self._ahead is not None and self._stop_at_collection is not None:
            self._stop_at_collection.detach()
            self._ahead.close()
            self._ahead = None


@cache
def _keep_memory_warm() -> None:
    """Make the allocator keep the memory of batches that are gone for those that come.

    By default glibc returns free memory beyond 128 kB to the system, and a batch of 100 kB in
    fresh pages takes three times as long as in used ones. It keeps as much as twice the largest
    block that was ever freed, so one is freed here, without having been touched.
    """
    np.empty(16 << 20, dtype=np.uint8)
