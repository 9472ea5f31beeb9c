"""The lowest stage: the random-access part of a plan, computed range by range."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import final

from gristmill._engine.blocks.block import Block, BlockResult, SourceEndedError, log_source_end
from gristmill._engine.executors.base import Executor
from gristmill._engine.stages.base import CursorFilter, SegmentStage
from gristmill._engine.tuning.block_size import first_block_size, next_block_size
from gristmill._metrics.counters import Counters
from gristmill._metrics.timeline import Work
from gristmill.types import Cursor


@final
class RangeStage(SegmentStage):
    """Keeps an executor busy with the ranges that follow a cursor."""

    def __init__(
        self,
        executor: Executor,
        *,
        length: int,
        num_needed: Callable[[int], int],
        records_per_position: int,
        num_flat_maps: int,
        counters: Counters,
        first_step: int = 0,
        num_sources: int = 1,
        reads_many: bool = False,
        needs_thread: bool = False,
        on_source_end: Callable[[SourceEndedError], None] = log_source_end,
    ) -> None:
        self._executor = executor
        self._length = length
        self._num_needed = num_needed
        self._end = num_needed(length)
        self._records = records_per_position
        self._start = (0,) * (1 + num_flat_maps)
        self._counters = counters
        self._first_step = first_step
        self._needs_thread = needs_thread
        self._on_source_end = on_source_end
        self._has_reported_end = False
        self._is_closed = False
        counters.timeline.include(self.pending_work)
        self._block_size = first_block_size(
            executor.target_block_s,
            executor.policy,
            records_per_position=records_per_position,
            num_sources=num_sources,
            reads_many=reads_many,
        )
        self._next = 0
        self._stop: int | None = None
        """The position from which on nothing is submitted, while the stage settles."""
        self._sizes: deque[int] = deque()
        self._skip = CursorFilter()

    def pull(self) -> BlockResult | None:
        result = None
        while result is None:
            self._fill()
            if not self._sizes:
                return None if self._next >= self._end else BlockResult(Block.empty())
            result = self._executor.collect(has_more=self._next < self._fill_end)
        size = self._sizes.popleft()
        self._counters.num_positions += size * self._records
        if isinstance(result.error, SourceEndedError):
            result = self._end_source(result, result.error)
        elif len(result.block) < size:
            self._end = self._length  # an element is absent, so a batch at the end may need more
        if result.stats is not None:
            self._block_size = next_block_size(
                self._block_size, result.stats, self._executor.policy
            )
        self._counters.count_steps(result.step_times, first=self._first_step)
        self._counters.count_work(
            result.seconds if result.busy_s is None else result.busy_s, result.transfer_s
        )
        self._counters.record_work(result.work, first=self._first_step)
        return self._skip.drop(result)

    def pending_work(self) -> list[Work]:
        """Return what was or is being done for blocks that were not pulled. For any thread."""
        if self._is_closed:
            return []
        return [work.of_steps(self._first_step) for work in self._executor.pending_work()]

    def _keep_pending_work(self) -> None:
        """Record the work on blocks that will not be pulled: views show it, too."""
        for work in self.pending_work():
            self._counters.timeline.add(work)

    @property
    def start(self) -> Cursor:
        return self._start

    def seek(self, cursor: Cursor) -> Cursor:
        cursor = tuple(cursor)
        self._keep_pending_work()
        self._executor.cancel()
        self._sizes.clear()
        self._stop = None
        # Rounded up: the cursor after a last, smaller batch is the number of records.
        self._next = -(-cursor[0] // self._records)
        self._end = self._next + self._num_needed(max(0, self._length - self._next))
        self._skip = CursorFilter(cursor)
        return cursor

    def settle(self, num_missing: int = 0) -> Cursor | None:
        if self._sizes:
            self._stop = self._next
            return None
        self._stop = self._next + num_missing
        if num_missing:
            return None
        return (self._next * self._records, *self._start[1:])

    @property
    def needs_thread(self) -> bool:
        return self._needs_thread

    def interrupt(self) -> None:
        self._executor.interrupt()

    def close(self) -> None:
        self._keep_pending_work()
        self._is_closed = True
        self._executor.close()

    def dispose(self) -> None:
        self._executor.dispose()

    def _end_source(self, result: BlockResult, end: SourceEndedError) -> BlockResult:
        """End the stream after a block, until `seek`, and report that once."""
        if not self._has_reported_end:
            self._has_reported_end = True
            self._on_source_end(end)
        self._executor.cancel()
        self._sizes.clear()
        self._end = self._next
        return replace(result, error=None)

    @property
    def _fill_end(self) -> int:
        return self._end if self._stop is None else min(self._end, self._stop)

    def _fill(self) -> None:
        while self._next < self._fill_end and self._executor.has_room:
            grid = self._executor.grid
            if grid is None:
                size = self._block_size.size
                size = min(size, self._executor.max_positions or size)
            else:
                size = grid - self._next % grid
            size = min(size, self._fill_end - self._next)
            self._executor.submit(range(self._next, self._next + size))
            self._sizes.append(size)
            self._next += size
