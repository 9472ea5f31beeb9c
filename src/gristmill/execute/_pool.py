"""Worker processes for one plan, or for several that one stream is made of."""

import itertools
from collections import deque
from functools import cached_property
from typing import final

from gristmill.execute._crew import Crew
from gristmill.execute._reader import Cut
from gristmill.execute._task import Task
from gristmill.observe import Counters
from gristmill.options import ReadOptions, WorkerOptions


@final
class Pool:
    """A crew, the line of tasks before it, and who uses it: it ends with the last of them."""

    def __init__(self, *, num_workers: int, options: WorkerOptions, counters: Counters) -> None:
        self.num_workers = num_workers
        self.options = options
        self.counters = counters
        self.todo: deque[Task] = deque()
        self.numbers = itertools.count()
        self.num_users = 0
        self._num_left = 0
        self._num_gone = 0

    @cached_property
    def crew(self) -> Crew:
        """The workers; made for the first user, and gone with the last."""
        return Crew(
            num_workers=self.num_workers,
            options=self.options,
            todo=self.todo,
            numbers=self.numbers,
            counters=self.counters,
        )

    @property
    def is_open(self) -> bool:
        """Whether another plan can still be added."""
        return not (self._num_left or (self.num_users and self.crew.has_started))

    def join(self, cut: Cut, read: ReadOptions) -> int:
        """Have a plan's ranges computed, too; give its number."""
        self.num_users += 1
        return self.crew.add_job(cut, read)

    def leave(self) -> None:
        """End the workers when the last user has left. Any thread may call this."""
        self._num_left += 1
        if self._num_left >= self.num_users:
            self.crew.close()

    def dispose(self) -> None:
        """Let go of everything when the last user has."""
        self._num_gone += 1
        if self._num_gone == self.num_users:
            self.crew.dispose()
