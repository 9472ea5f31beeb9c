"""A running plan: elements one by one, and the place to go on from.

Ctrl-C may come between any two steps of this, up to where an element is handed over. What is handed
out is therefore replaced as a whole (`_Handout`), and while a block is on its way the stream is
*unsure*: the next time it needs one it begins anew at the last place it is sure of.
"""

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import final

from gristmill.checkpoint import Position, SkippedRecord
from gristmill.errors import ClosedError
from gristmill.execute._ahead import Ahead
from gristmill.execute._allocator import keep_memory_warm
from gristmill.execute._blame import add_note_once
from gristmill.execute._open import Settings, open_stages
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._track import Cursor
from gristmill.observe import Counters
from gristmill.plan import Node
from gristmill.types import Element

BUSY_SHARE = 0.5
"""A thread pays from when the consumer is busy for about half the time that a block takes."""

MEMORY = 0.95
"""How much of the past counts: one pause of the system makes no busy consumer."""


logger = logging.getLogger("gristmill")


@final
class Stream:
    """The elements of a plan from a cursor on.

    Where the settings allow it, a background thread makes the next ones while the consumer is
    busy: from `start` on, or as soon as the consumer is seen to be busy. Where it does nothing but
    take elements there is nothing to gain, and two threads that take turns at the interpreter lose
    a quarter. Threads and processes that compute are always spoken to by such a thread, which ends
    when they were only tried.

    After an error the stream stands before the element that failed: the next try computes it anew.
    """

    def __init__(self, plan: Node, settings: Settings) -> None:
        keep_memory_warm()
        self.counters = Counters()
        self._settings = settings
        self._engine = _Engine(open_stages(plan, settings, self.counters))
        # Without this, what runs in the background would outlive a stream that nobody holds.
        self._end_at_collection = weakref.finalize(self, self._engine.end)
        self._handout = _Handout(self._engine.stage.start)
        self._skips: list[tuple[Cursor, SkippedRecord]] = []
        self._is_unsure = False
        self._is_closed = False
        self._is_lent = False
        """Whether a thread has the stage because that needed one, not because it pays."""
        self._busy_seconds = 0.0
        self._making_seconds = math.inf  # nothing was made yet
        self._made_seconds = 0.0
        self._handed_over_at = time.perf_counter()

    @property
    def cursor(self) -> Cursor:
        """Where the stream goes on: after the last element that was handed out."""
        return self._handout.cursor

    @property
    def position(self) -> Position:
        """Where the stream goes on, and what it left out up to there."""
        return self.bookmark()()

    def bookmark(self) -> Callable[[], Position]:
        """Note the present place; what is called later gives it, wherever the stream is then."""
        handout, num_waiting, skips = self._handout, len(self._handout.waiting), self._skips

        def position() -> Position:
            cursor = handout.cursor_before(num_waiting)
            return Position(cursor, tuple(skip for skip in skips if skip[0] <= cursor))

        return position

    @property
    def skipped(self) -> list[SkippedRecord]:
        """The records that were left out so far."""
        return [record for _, record in self._skips]

    def __next__(self) -> Element:
        if not self._handout.waiting:
            self._refill()
        return self._handout.waiting.pop()

    def seek(self, position: Position) -> None:
        """Go on from a position."""
        self._is_unsure = True
        self._engine.seek(position.cursor)
        self.counters.take_back()
        self._handout = _Handout(position.cursor)
        self._skips = list(position.skipped)
        self.counters.skipped = len(self._skips)
        self._is_unsure = False

    @property
    def refuses_at_once(self) -> bool:
        """Whether `seek` raises where a cursor does not fit: a thread tells it only later."""
        return self._engine.is_stage_ours

    def start(self) -> None:
        """Begin to run ahead, if that is how this stream runs."""
        may = self._settings.runs_ahead or self._engine.stage.needs_thread
        if may and self._engine.ahead is None and not self._is_closed:
            was_unsure, self._is_unsure = self._is_unsure, True
            self._engine.start(self._handout.end)
            self._is_unsure = was_unsure

    def close(self) -> None:
        """End what runs in the background. The cursor can still be read."""
        self._is_closed = True
        self.counters.take_back()
        self._handout = _Handout(self.cursor)
        self._engine.close()
        self._end_at_collection.detach()  # not before: Ctrl-C may come meanwhile

    def _refill(self) -> None:
        """Get the next block, or raise what stands in its place."""
        if self._is_closed:
            raise ClosedError("The iterator was closed. Make a new one from the loader.")
        if self._is_unsure:
            self.seek(self.position)
        asked_at = time.perf_counter()
        # A pause counts as one that is as long as the block took: a single long one, for a look at
        # something, makes no busy consumer.
        pause = min(asked_at - self._handed_over_at, self._made_seconds)
        self._busy_seconds = MEMORY * self._busy_seconds + pause
        is_busy = self._busy_seconds / self._making_seconds >= BUSY_SHARE
        needs_thread = self._engine.stage.needs_thread
        if self._is_lent and not (is_busy or needs_thread):
            self._reclaim()
        elif is_busy or needs_thread or not self._engine.is_stage_ours:
            self._is_lent = not is_busy and (self._is_lent or self._engine.is_stage_ours)
            self.start()
        self._is_unsure = True
        while not self._handout.waiting:
            error = self._handout.error
            if error is not None:
                self.seek(self.position)
                try:
                    raise error
                finally:
                    del error  # else it would hold this frame, and that the stream
            outcome = self._engine.pull()
            if outcome is None:
                self._is_unsure = False
                raise StopIteration
            if outcome.skips:
                outcome = self._within_budget(outcome)
            self._handout = _Handout(self.cursor, outcome)
        self._is_unsure = False
        self.counters.count_block(self._handout.waiting, asked_at=asked_at)
        self._handed_over_at = time.perf_counter()
        self._made_seconds = made_s = max(self._handed_over_at - asked_at, 1e-9)
        if math.isinf(self._making_seconds):
            self._making_seconds, self._busy_seconds = 0.0, 0.0
        self._making_seconds = MEMORY * self._making_seconds + made_s

    def _reclaim(self) -> None:
        """Go on without the thread; what it has made ahead is made again."""
        self._is_unsure = True
        self._engine.reclaim()
        self._is_lent = not self._engine.is_stage_ours
        self.seek(self.position)
        if self._is_lent:
            self.start()

    def _within_budget(self, outcome: Outcome) -> Outcome:
        """Take note of what was left out; the one too many is an error in its place."""
        budget = self._settings.on_error.budget if self._settings.on_error else 0
        for skip in sorted(outcome.skips, key=lambda skip: skip.cursor):
            if self._skips and skip.cursor <= self._skips[-1][0]:
                continue  # met before, by who read on from here before
            if len(self._skips) >= budget:
                add_note_once(
                    skip.error,
                    f"{budget} bad records were skipped before it, which is the `budget` of "
                    "`SkipErrors`.",
                )
                kept = outcome.block.track.num_until(skip.cursor) if len(outcome.block) else 0
                return replace(outcome, block=outcome.block[:kept], error=skip.error)
            self._skips.append((skip.cursor, skip.record))
            self.counters.skipped = len(self._skips)
            logger.warning("Skipped a bad record: %s", skip.record)
        return outcome


@final
class _Engine:
    """The stage, and the thread that pulls it if there is one."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.ahead: Ahead | None = None
        self.is_stage_ours = True  # until a thread has it: from then on only threads do
        self._turn = threading.Lock()
        self._is_closed = False

    def pull(self) -> Outcome | None:
        return self.stage.pull() if self.ahead is None else self.ahead.pull()

    def start(self, cursor: Cursor) -> None:
        """Let a thread go on from a cursor."""
        self.is_stage_ours = False
        self.ahead = Ahead(self.stage, cursor, self._turn, self._settle)
        self.ahead.start()

    def reclaim(self) -> None:
        """Have the thread leave the stage, which is ours again if it does so soon."""
        if self.ahead is not None:
            self.ahead.stop()
            self.stage.interrupt()
            has_left = self.ahead.wait()
            self.ahead = None  # first: nobody may pull from it when the stage is ours
            self.is_stage_ours = has_left

    def seek(self, cursor: Cursor) -> None:
        """Go on from a cursor: a thread that has the stage is left, and the next one told."""
        if self.is_stage_ours:
            self.stage.seek(cursor)
        elif self.ahead is not None:
            self.ahead.stop()
            self.ahead = None
            self.stage.interrupt()

    def end(self) -> None:
        """End everything, and wait for the processes, which are killed."""
        ahead, self.ahead = self.ahead, None  # they hold each other, and what was made ahead
        if ahead is not None:
            ahead.stop()
        self._is_closed = True
        self.stage.close()
        self._settle()

    def close(self) -> None:
        """End everything, and wait for the thread."""
        ahead = self.ahead
        self.end()
        if ahead is not None:
            ahead.wait()

    def _settle(self) -> None:
        """Let go of everything once it is closed and nobody is at it.

        Called by who closes it, and by every thread after its turn: one of them has it to itself.
        A descriptor that is closed while another thread waits on it may soon be another's.
        """
        if self._is_closed and self._turn.acquire(blocking=False):
            try:
                self.stage.dispose()
            finally:
                self._turn.release()


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
        return self.cursor_before(len(self.waiting))

    def cursor_before(self, num_waiting: int) -> Cursor:
        """Tell where to go on when so many are waiting."""
        track = self._track
        if track is None or len(track) == num_waiting:
            return self._start
        return track.after(len(track) - num_waiting - 1)

    @property
    def end(self) -> Cursor:
        """Where to go on after all of them."""
        track = self._track
        return self._start if track is None or not len(track) else track.after(len(track) - 1)
