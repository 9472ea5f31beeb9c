"""Who computes the random-access part of a plan: ranges of positions in, outcomes out in order.

Any part of it can be computed by anyone, at any time, again. So an executor only has to hand the
ranges out and give the outcomes back in the order of the ranges; how many it takes ahead, and
where they are computed, changes nothing in the stream.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import final

from gristmill.execute._outcome import Outcome


class Executor(ABC):
    """Computes ranges of positions and gives the outcomes back in order."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """How many ranges to keep under way."""

    @abstractmethod
    def submit(self, positions: range) -> None:
        """Take on a range."""

    @abstractmethod
    def collect(self) -> Outcome:
        """Wait for the outcome of the earliest range that was submitted and not yet collected."""

    @abstractmethod
    def cancel(self) -> None:
        """Forget what is under way."""


@final
class InlineExecutor(Executor):
    """Computes a range when its outcome is asked for."""

    def __init__(self, read: Callable[[range], Outcome]) -> None:
        self._read = read
        self._submitted: deque[range] = deque()

    @property
    def depth(self) -> int:
        return 1

    def submit(self, positions: range) -> None:
        self._submitted.append(positions)

    def collect(self) -> Outcome:
        return self._read(self._submitted.popleft())

    def cancel(self) -> None:
        self._submitted.clear()
