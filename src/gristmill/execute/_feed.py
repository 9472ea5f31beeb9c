"""The lowest stage: the random-access part of a plan, range after range."""

from collections import deque
from typing import final

from gristmill.execute._executor import Executor
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Skip, Stage
from gristmill.execute._track import Cursor

BLOCK_SECONDS = 0.0015
"""What a block should take: long enough that handing it over costs nothing beside it (tens of us),
short enough that a consumer which shares the interpreter with its maker is never kept waiting."""

BLOCK_POSITIONS = 4096
BLOCK_RECORDS = 65_536


@final
class FeedStage(Stage):
    """Keeps an executor busy with the ranges that follow a cursor."""

    def __init__(self, executor: Executor, *, length: int, records_per_position: int) -> None:
        self._executor = executor
        self._length = length
        self._records = records_per_position
        self._pace = Pace(limit=min(BLOCK_POSITIONS, max(1, BLOCK_RECORDS // records_per_position)))
        self._next = 0
        self._sizes: deque[int] = deque()
        self._skip = Skip()

    def pull(self) -> Outcome | None:
        while len(self._sizes) < self._executor.depth and self._next < self._length:
            size = min(self._pace.size, self._length - self._next)
            self._executor.submit(range(self._next, self._next + size))
            self._sizes.append(size)
            self._next += size
        if not self._sizes:
            return None
        outcome = self._executor.collect()
        self._pace.observe(self._sizes.popleft(), outcome.seconds)
        return self._skip.drop(outcome)

    def seek(self, cursor: Cursor) -> None:
        self._executor.cancel()
        self._sizes.clear()
        # Rounded up: after the last, smaller batch stands the number of records there are.
        self._next = -(-cursor[0] // self._records)
        self._skip = Skip(cursor)


@final
class Pace:
    """Learns how many positions make a block of about the wanted time."""

    def __init__(self, *, limit: int) -> None:
        self.size = 1
        self._limit = limit

    def observe(self, size: int, seconds: float) -> None:
        """Take note of how long a block of `size` positions took."""
        if seconds < BLOCK_SECONDS / 2 and size == self.size:
            self.size = min(2 * self.size, self._limit)
        elif seconds > 2 * BLOCK_SECONDS and size <= self.size:
            self.size = max(1, self.size // 2)
