"""A running plan: its elements one by one, and the position after the last of them."""

import importlib
import logging
import math
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias, final

from gristmill._base.memory.aligned_alloc import keep_memory_warm
from gristmill._base.threads.background import ParkedError
from gristmill._base.threads.resumable_puller import STOP_TIMEOUT_S, ResumablePuller, take
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._checkpoint.state import Position
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import as_visible
from gristmill._engine.build import open_stages
from gristmill._engine.inline_plan import wants_profile
from gristmill._engine.run_log import RunLog
from gristmill._engine.settings import Settings
from gristmill._engine.skip_ledger import SkipLedger
from gristmill._engine.skip_log import SkipLog
from gristmill._engine.stages.base import StageProducer
from gristmill._engine.tuning.measure import BlockStats
from gristmill._engine.tuning.prefetch_choice import (
    ConsumerLoad,
    ThreadAction,
    after_block,
    after_request,
    choose_thread,
)
from gristmill._metrics.counters import Counters
from gristmill._plan.nodes.base import Node
from gristmill.errors import ClosedError
from gristmill.types import Cursor, Element


@final
class Handout:
    """The elements of a block that the user has not taken yet, and the cursors around them.

    A stream replaces it as a whole, in one assignment, and `take` takes elements. So at any moment,
    even if Ctrl-C interrupts the stream, the number of elements that wait determines which one was
    taken last.
    """

    __slots__ = ("_digests", "_lineage", "_start", "error", "waiting")

    def __init__(self, start: Cursor, result: BlockResult | None = None) -> None:
        """Hand out the elements of `result`, which follow the cursor `start`."""
        self._start = start
        self._lineage = None if result is None else result.block.lineage
        self._digests = None if result is None else result.digests
        self.error = None if result is None else result.error
        """What the stream raises after the last element, if anything."""
        self.waiting: list[Element] = [] if result is None else result.block.rows()[::-1]
        """The elements that were not taken yet, the next one last."""

    @property
    def cursor(self) -> Cursor:
        """The cursor after the last element that was taken."""
        return self.cursor_before(len(self.waiting))

    def cursor_before(self, num_waiting: int) -> Cursor:
        """Return the cursor at the moment when `num_waiting` elements are waiting."""
        lineage = self._lineage
        if lineage is None or len(lineage) == num_waiting:
            return self._start
        return lineage.after(len(lineage) - num_waiting - 1)

    def num_taken(self, num_waiting: int) -> int:
        """Return the number of elements taken at the moment when `num_waiting` are waiting."""
        return 0 if self._lineage is None else len(self._lineage) - num_waiting

    def digest_before(self, num_waiting: int) -> str | None:
        """Return the checksum of the last element at the moment when `num_waiting` are waiting.

        `None` if it was not computed.
        """
        num_taken = self.num_taken(num_waiting)
        return self._digests[num_taken - 1] if self._digests and num_taken else None

    @property
    def end(self) -> Cursor:
        """The cursor after the last element of the block."""
        lineage = self._lineage
        if lineage is None or not len(lineage):
            return self._start
        return lineage.after(len(lineage) - 1)


logger = logging.getLogger("gristmill")

PROFILE_INTERVAL_S = 60.0
"""How often `enable_profiling=True` logs what the workers did: as often as Grain's summary."""

PARK_TIMEOUT_S = 0.1
"""How long an error or Ctrl-C waits for the background thread to end."""


CountBlock: TypeAlias = Callable[[Callable[[], Position], int], None]
"""A function of the position before a block, which it can find out, and the number of elements."""


@final
class Stream:
    """The elements of a plan starting at a cursor.

    If the settings allow it, a background thread computes the next elements while the consumer is
    busy: from `start` on, or once the consumer was measured to be busy (`tuning/prefetch_choice`).
    Threads and processes that compute are always driven by such a thread, which ends if they were
    only tried.

    After an error the stream stays before the element that failed: the next call computes it
    again. After an error, Ctrl-C or the last element, nothing runs in the background: a traceback
    may keep this object alive for as long as a notebook runs. The next call opens the stages again.
    The same happens if no element is taken for `idle_timeout_s` of the workers: after an error in
    the body of the user's loop, the traceback may hold the iterator.

    Ctrl-C may interrupt it anywhere. `ResumablePuller` describes the protocol that makes this safe;
    the position that is certain is that of the `Handout`.
    """

    def __init__(self, plan: Node, settings: Settings, log: RunLog | None = None) -> None:
        """Open the stages of a plan. Nothing is read before the first element is requested.

        Args:
            plan: The plan.
            settings: How it runs.
            log: Logs its start and its end. Streams that only compute a position have none.
        """
        self._log = log
        keep_memory_warm()
        self.counters = Counters()
        self._plan = plan
        self._settings = settings
        self._skip_budget = settings.on_error.budget if settings.on_error else 0
        self._digest: Callable[[Element], str] | None = None
        self._count_block: CountBlock | None = None
        self._open(needs_resync=False)
        self._handout = Handout(self._stage.start)
        self._skip_log = SkipLog()
        self._ledger = SkipLedger(self._skip_budget, self._skip_log)
        self._has_ended = False
        self._is_closed = False
        self._logs_profile = wants_profile(plan, settings)
        first_s = PROFILE_INTERVAL_S if self._logs_profile else math.inf
        self._next_profile_at = time.perf_counter() + first_s
        self._prefetch_is_requested = False
        """Whether the user wants a thread. Otherwise it ends when it does not pay off."""
        self._load = ConsumerLoad(last_ready_at=time.perf_counter())

    def _open(self, *, needs_resync: bool) -> None:
        self.counters.reopen()
        self._stage = open_stages(self._plan, self._settings, self.counters)
        self._producer = StageProducer(self._stage, self._digest)
        policy = self._settings.policy
        has_workers = self._stage.needs_thread
        puller = ResumablePuller[BlockResult, Cursor](
            self._producer,
            buffer_size=policy.worker_prefetch_blocks if has_workers else policy.prefetch_blocks,
            name="gristmill-stream",
            idle_timeout_s=self._settings.idle_timeout_s,
        )
        puller.needs_resync = needs_resync  # first: Ctrl-C may come at any moment
        self._puller = puller
        # Otherwise threads and processes would outlive a stream that is no longer referenced.
        self._end_at_collection = weakref.finalize(self, puller.end)
        self._is_parked = False

    def _park(self, timeout_s: float) -> None:
        """End what runs in the background, until the next call.

        A thread that is in a function of the user may not end in time. The stages stay open until
        it ends after that function: no other thread may call it at the same time.
        """
        is_alone = self._puller.is_owner and not self._stage.needs_thread
        if not is_alone and not self._puller.is_parked:
            self._puller.reclaim(timeout_s)
            if self._puller.is_owner:
                self._is_parked = True
                self._puller.end()
                self._end_at_collection.detach()
            else:
                self._puller.park_later()

    def pause(self) -> None:
        """End what runs in the background until the next call, without waiting for it."""
        if not (self._is_parked or self._is_closed):
            self._park(0.0)

    def _unpark(self) -> None:
        self._puller.keep()
        if (self._is_parked or self._puller.is_parked) and not self._is_closed:
            self._end_at_collection.detach()
            self._open(needs_resync=True)  # its stages are at the start

    def digest_elements(self, digest: Callable[[Element], str]) -> None:
        """Compute a checksum of each element from now on, in the background if a thread runs."""
        self._digest = self._producer.digest = digest

    def count_blocks(self, count_block: CountBlock | None) -> None:
        """Call a function before the elements of each block, up to the first error."""
        self._count_block = count_block

    @property
    def last_digest(self) -> str | None:
        """The checksum of the last element, or `None` if it was computed before they were."""
        return self._handout.digest_before(len(self._handout.waiting))

    @property
    def cursor(self) -> Cursor:
        """The cursor after the last element that was handed out."""
        return self._handout.cursor

    @property
    def position(self) -> Position:
        """The cursor after the last element that was handed out, and the records skipped so far."""
        return self.bookmark()()

    def bookmark(self) -> Callable[[], Position]:
        """Return a function that returns the present position, wherever the stream is by then."""
        handout, num_waiting, ledger = self._handout, len(self._handout.waiting), self._ledger

        def position() -> Position:
            cursor = handout.cursor_before(num_waiting)
            return Position(cursor, ledger.entries_until(cursor))

        return position

    def bookmark_last(self) -> Callable[[], tuple[Position, Cursor] | None]:
        """Return a function that returns the position before the present last element.

        With it comes the cursor after the element. `None` if no element was taken since the start
        or the last `seek`.
        """
        handout, num_waiting, ledger = self._handout, len(self._handout.waiting), self._ledger

        def positions() -> tuple[Position, Cursor] | None:
            if not handout.num_taken(num_waiting):
                return None
            before, after = (handout.cursor_before(num_waiting + n) for n in (1, 0))
            return Position(before, ledger.entries_until(before)), after

        return positions

    @property
    def skipped(self) -> list[SkippedRecord]:
        """The records that were skipped so far."""
        return self._ledger.records

    def __next__(self) -> Element:
        return take(self.fill().waiting)

    def fill(self) -> Handout:
        """Return what is handed out next: at least one element, which `take` takes.

        Raises:
            StopIteration: There are no more elements.
        """
        if not self._handout.waiting:
            try:
                self._refill()
            except StopIteration:
                if not self._has_ended:
                    self._show_summary()
                self._has_ended = True
                self._park(STOP_TIMEOUT_S)
                self._log_end()
                raise
            except BaseException:
                self._count_block = None  # Ctrl-C may have come before or after a block was counted
                self._park(PARK_TIMEOUT_S)
                raise
        return self._handout

    def seek(self, position: Position) -> None:
        """Continue from a position."""
        self._unpark()
        self._has_ended = False
        self._puller.seek(position.cursor)
        if self._puller.is_parked:  # just now
            self._unpark()
            self._puller.seek(position.cursor)
        self.counters.take_back()
        self._handout = Handout(position.cursor)
        self._ledger = SkipLedger(self._skip_budget, self._skip_log, position.skipped)
        self._count_skipped()
        self._puller.needs_resync = False

    def _count_skipped(self) -> None:
        self.counters.skipped = len(self._ledger)
        self.counters.recent_skips = self._ledger.recent

    @property
    def seeks_at_once(self) -> bool:
        """Whether `seek` raises if a cursor does not fit. A thread reports that only later."""
        return self._puller.is_owner or self._is_parked

    def start(self) -> None:
        """Keep a background thread from now on, if the settings allow or the stage needs one."""
        self._prefetch_is_requested = True
        if not self._has_ended:
            self._unpark()
            self._start_thread()

    def _start_thread(self) -> None:
        if (self._settings.runs_ahead or self._stage.needs_thread) and not self._is_closed:
            # A stage that is there need not seek, and keeps what its threads have begun.
            is_there = self._puller.is_owner and not self._puller.needs_resync
            self._puller.start(None if is_there else self._handout.end)

    @property
    def is_closed(self) -> bool:
        """Whether the stream was closed, and yields no more elements."""
        return self._is_closed

    def close(self) -> None:
        """End all threads and processes of this stream. The cursor can still be read."""
        if not (self._is_closed or self._has_ended):
            self._show_summary()
        self._is_closed = True
        self.counters.take_back()
        self._handout = Handout(self.cursor)
        self._puller.close()
        self._end_at_collection.detach()  # last: Ctrl-C may come before
        self._log_end()

    def _log_end(self) -> None:
        self._skip_log.end()
        if self._log is not None:
            self._log.end(self.counters)

    def _show_summary(self) -> None:
        """Print or log what was done, if the user wants that."""
        if not (self._settings.prints_summary or self._logs_profile):
            return
        stats = self.counters.stats()
        if not stats.num_elements:
            return
        module: Any = importlib.import_module("gristmill._metrics.summary")  # most runs need none
        summary = module.run_summary(stats, self.counters.timeline)
        if self._settings.prints_summary:
            sys.stderr.write(f"{summary}\n")
        else:
            logger.info("Profile of the workers so far:\n%s", summary)

    def _refill(self) -> None:
        """Get the next block that has elements, or raise the error in its place."""
        if self._is_closed:
            raise ClosedError("The iterator was closed. Make a new one from the loader or dataset.")
        if self._has_ended:
            raise StopIteration
        if self._log is not None:
            self._log.start()
        self._unpark()
        if self._puller.needs_resync:
            self.seek(self.position)
        asked_at = time.perf_counter()
        self.counters.count_request()
        self._choose_thread(asked_at)
        while not self._handout.waiting:
            error = self._handout.error
            if error is not None:
                self.seek(self.position)
                error = as_visible(error)
                try:
                    raise error
                finally:
                    del error  # else it would hold this frame, and that the stream
            try:
                result = self._puller.pull()
            except ParkedError:
                self.seek(self.position)
                self._choose_thread(asked_at)
                continue
            if result.skips:
                result = self._ledger.add(result)
                self._count_skipped()
            self._handout = Handout(self.cursor, result)
        self._puller.needs_resync = False
        self._observe_block(asked_at)

    def _observe_block(self, asked_at: float) -> None:
        """Count the block that was requested at `asked_at`, and learn from it."""
        if self._count_block is not None:
            self._count_block(self.bookmark(), len(self._handout.waiting))
        self.counters.count_block(self._handout.waiting, asked_at=asked_at)
        if asked_at > self._next_profile_at:
            self._next_profile_at = asked_at + PROFILE_INTERVAL_S
            self._show_summary()
        stats = BlockStats(len(self._handout.waiting), asked_at, time.perf_counter())
        self._load = after_block(self._load, stats, self._settings.policy)
        if self._stage.needs_thread:  # this block was the first one on threads or workers
            self._start_thread()  # if the consumer never comes back, it ends them

    def _choose_thread(self, asked_at: float) -> None:
        """Start or stop the background thread, if that pays off."""
        policy = self._settings.policy
        self._load = after_request(self._load, asked_at, policy)
        action = choose_thread(
            self._load,
            policy,
            needs_thread=self._stage.needs_thread,
            has_thread=not self._puller.is_owner,
            is_requested=self._prefetch_is_requested,
        )
        if action is ThreadAction.STOP:
            self._reclaim()
        elif action is ThreadAction.START:
            self._start_thread()

    def _reclaim(self) -> None:
        """Continue without the thread, after the blocks that it has prefetched."""
        self._puller.retire(STOP_TIMEOUT_S)
        if self._puller.needs_resync:
            self.seek(self.position)
        if not self._puller.is_owner:  # it did not end in time: another one waits for its end
            self._start_thread()
