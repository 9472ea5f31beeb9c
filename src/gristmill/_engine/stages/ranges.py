"""The lowest stage: the random-access part of a plan, range after range."""

import gc
from collections import deque
from collections.abc import Callable
from typing import final

from gristmill._engine.blocks.block_result import BlockResult
from gristmill._engine.executors.base import Executor
from gristmill._engine.stages.base import CursorFilter, Stage
from gristmill._metrics.counters import Counters
from gristmill.types import Cursor

MAX_BLOCK_POSITIONS = 4096
MAX_BLOCK_RECORDS = 65_536

MAX_SOURCES_BLOCK_FACTOR = 8
"""A block that is gathered from many sources takes many small reads: it may take so many times as
long as others."""


BULK_READ_BLOCK_FACTOR = 4
"""A source that reads many at once does so the better, the more there are."""

REMOTE_BLOCK_FACTOR = 20
"""A block of a source that is far away, and reads many at once, may take so many times as long."""

GC_RETRY_BLOCKS = 256
"""After so many blocks without a collection of garbage longer ones are tried again: it may have
been the garbage of another thread."""


@final
class RangeStage(Stage):
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
        times = max(num_sources // 4, BULK_READ_BLOCK_FACTOR if reads_many else 1)
        self._block_sizer = BlockSizer(
            executor.block_seconds * min(MAX_SOURCES_BLOCK_FACTOR, max(1, times)),
            limit=min(MAX_BLOCK_POSITIONS, max(1, MAX_BLOCK_RECORDS // records_per_position)),
        )
        self._reads_many = reads_many
        self._next = 0
        self._sizes: deque[int] = deque()
        self._skip = CursorFilter()

    def pull(self) -> BlockResult | None:
        result = None
        num_collections = 0
        while result is None:
            self._fill()
            if not self._sizes:
                return None
            num_collections = _num_collections()
            result = self._executor.collect(has_more=self._next < self._end)
        has_collected = _num_collections() > num_collections and self._executor.computes_here
        size = self._sizes.popleft()
        if len(result.block) < size:  # something is absent: what is dropped at the end is needed
            self._end = self._length
        if result.has_waited and self._reads_many:
            self._block_sizer.lengthen()
        self._block_sizer.observe(size, result.seconds, has_collected=has_collected)
        self._counters.count_steps(result.step_seconds, first=self._first_step)
        return self._skip.drop(result)

    @property
    def start(self) -> Cursor:
        return self._start

    def seek(self, cursor: Cursor) -> Cursor:
        cursor = tuple(cursor)
        self._executor.cancel()
        self._sizes.clear()
        # Rounded up: after the last, smaller batch stands the number of records there are.
        self._next = -(-cursor[0] // self._records)
        self._end = self._next + self._num_needed(max(0, self._length - self._next))
        self._skip = CursorFilter(cursor)
        return cursor

    @property
    def needs_thread(self) -> bool:
        return self._needs_thread

    def interrupt(self) -> None:
        self._executor.interrupt()

    def close(self) -> None:
        self._executor.close()

    def dispose(self) -> None:
        self._executor.dispose()

    def _fill(self) -> None:
        while self._next < self._end and self._executor.has_room:
            size = min(self._block_sizer.size, self._end - self._next)
            size = min(size, self._executor.max_positions or size)
            self._executor.submit(range(self._next, self._next + size))
            self._sizes.append(size)
            self._next += size


@final
class BlockSizer:
    """Learns how many positions make a block of about the wanted time.

    Records that are tuples or dicts are what the garbage collector counts. From 700 in a block on
    it runs for each block, and now and then through all that the process holds, which with PyTorch
    or JAX in it takes 0.1 s. Of cheap records that is ten times the rest, so blocks stay below.
    """

    def __init__(self, wanted_seconds: float, *, limit: int) -> None:
        self.size = 1
        self._wanted = wanted_seconds
        self._longest = REMOTE_BLOCK_FACTOR * wanted_seconds
        self._limit = self._highest_limit = limit
        self._num_collected = 0
        self._num_until_forgiven = 0

    def lengthen(self) -> None:
        """Let blocks take longer from now on, as to wait for many takes as long as for one."""
        self._wanted = self._longest

    def observe(self, size: int, seconds: float, *, has_collected: bool = False) -> None:
        """Take note of how long a block of `size` positions took, and if garbage was collected."""
        self._heed_garbage(size, has_collected=has_collected)
        if seconds < self._wanted / 2 and size == self.size:
            times = 8 if seconds < self._wanted / 16 else 2
            self.size = times * self.size
        elif seconds > 2 * self._wanted and size <= self.size:
            self.size = max(1, self.size // 2)
        self.size = min(self.size, self._limit)

    def _heed_garbage(self, size: int, *, has_collected: bool) -> None:
        self._num_collected = self._num_collected + 1 if has_collected and size > 1 else 0
        if self._num_collected > 1:  # once may be by chance
            self._num_collected = 0
            self._limit = size // 2
            self._num_until_forgiven = GC_RETRY_BLOCKS
        elif self._limit < self._highest_limit:
            self._num_until_forgiven -= 1
            if not self._num_until_forgiven:
                self._limit = min(2 * self._limit, self._highest_limit)
                self._num_until_forgiven = GC_RETRY_BLOCKS


def _num_collections() -> int:
    """Count how often the garbage collector has run."""
    return gc.get_stats()[0]["collections"]
