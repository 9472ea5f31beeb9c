"""Plain numbers that the engine counts up: per block, never per element.

Each is written by one thread at a time, the one whose turn it is, or the user's; so none is locked.
"""

import time
from collections.abc import Sequence
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill.observe._stats import Stats, StepStats


@final
class StepClock:
    """The seconds spent in one step."""

    __slots__ = ("name", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count some more."""
        self.seconds += seconds


@final
class Counters:
    """What one iterator counts.

    >>> counters = Counters(["reading", "Map f"])
    >>> counters.count_steps((0.5, 0.25))
    >>> counters.stats().steps[1].seconds
    0.25
    """

    def __init__(self, step_names: Sequence[str] = ()) -> None:
        self.steps = [StepClock(name) for name in step_names]
        self.executor = "inline"
        self.num_threads = 0
        self.num_workers = 0
        self.restarts = 0
        self.blocks_ready = 0
        self.blocks_under_way = 0
        self.shared_bytes = 0
        self.skipped = 0
        self._elements = 0
        self._num_bytes = 0
        self._waiting: Sequence[Any] = ()
        self._bytes_each = 0
        self._waited_s = 0.0
        self._first_asked_at: float | None = None
        self._last_given_at = 0.0

    def add_steps(self, names: Sequence[str]) -> int:
        """Count more steps, and give the number of the first of them."""
        self.steps += [StepClock(name) for name in names]
        return len(self.steps) - len(names)

    def count_steps(self, spent: Sequence[float], *, first: int = 0) -> None:
        """Count what a block took in each of the steps from the first on."""
        for number, seconds in enumerate(spent, start=first):
            self.steps[number].seconds += seconds

    def count_block(self, rows: Sequence[Any], *, asked_at: float) -> None:
        """Count a block that is handed over; the user takes its elements from `rows` one by one."""
        now = time.perf_counter()
        if self._first_asked_at is None:
            self._first_asked_at = asked_at
        self._last_given_at = now
        self._waited_s += now - asked_at
        self._waiting = rows
        self._bytes_each = num_bytes(rows[0]) if rows else 0
        self._elements += len(rows)
        self._num_bytes += self._bytes_each * len(rows)

    def take_back(self) -> None:
        """Do not count what the user has not taken, and never will."""
        self._elements -= len(self._waiting)
        self._num_bytes -= self._bytes_each * len(self._waiting)
        self._waiting = ()

    def stats(self) -> Stats:
        """Give the numbers of this moment."""
        began = self._first_asked_at
        return Stats(
            elements=self._elements - len(self._waiting),
            num_bytes=self._num_bytes - self._bytes_each * len(self._waiting),
            elapsed_s=0.0 if began is None else self._last_given_at - began,
            waited_s=self._waited_s,
            steps=tuple(StepStats(name=step.name, seconds=step.seconds) for step in self.steps),
            skipped=self.skipped,
            executor=self.executor,
            num_threads=self.num_threads,
            num_workers=self.num_workers,
            restarts=self.restarts,
            blocks_ready=self.blocks_ready,
            blocks_under_way=self.blocks_under_way,
            shared_bytes=self.shared_bytes,
        )


def num_bytes(element: Any) -> int:
    """Count the bytes of the arrays in an element, and of its texts.

    >>> num_bytes({"x": np.zeros(4, np.float32), "name": "four"})
    20
    """
    if isinstance(element, np.ndarray | np.generic):
        return cast("NDArray[Any]", element).nbytes
    if isinstance(element, str | bytes | bytearray):
        return len(element)
    if isinstance(element, dict):
        return sum(map(num_bytes, cast("dict[Any, Any]", element).values()))
    if isinstance(element, list | tuple):
        return sum(map(num_bytes, cast("Sequence[Any]", element)))
    return 0
