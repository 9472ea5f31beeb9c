"""Who computes the random-access part of a plan: ranges of positions in, outcomes out in order.

Any part of it can be computed by anyone, at any time, again. So an executor only has to hand the
ranges out and give the outcomes back in the order of the ranges; how many it takes ahead, and
where they are computed, changes nothing in the stream.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import final

from gristmill._engine.blocks.block_result import BlockResult

BLOCK_SECONDS = 0.0015
"""What a block should take: long enough that handing it over costs nothing beside it (tens of us),
short enough that a consumer which shares the interpreter with its maker is never kept waiting."""


class Executor(ABC):
    """Computes ranges of positions and gives the outcomes back in order.

    One thread at a time calls it, but for `interrupt` and `close`, which any thread may.
    """

    block_seconds: float = BLOCK_SECONDS
    """What a range should take."""

    computes_here: bool = False
    """Whether a range is computed by who collects it."""

    @property
    @abstractmethod
    def has_room(self) -> bool:
        """Whether to submit one more range."""

    @property
    def max_positions(self) -> int | None:
        """The largest range it can take, if there is a limit."""
        return None

    @abstractmethod
    def submit(self, positions: range) -> None:
        """Take on a range."""

    @abstractmethod
    def collect(self, *, has_more: bool) -> BlockResult | None:
        """Wait for the outcome of the earliest range that was submitted and not yet collected.

        Where the caller `has_more` ranges, it gives `None` when meanwhile there is room for one.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Forget what is under way."""

    def interrupt(self) -> None:  # noqa: B027 - only who waits has to
        """Make `collect` in another thread end soon; it is cancelled next, or closed."""

    def close(self) -> None:  # noqa: B027 - only who has something running has to
        """End whatever runs."""

    def dispose(self) -> None:  # noqa: B027 - only who holds something has to
        """Let go of everything, after `close`."""


@final
class InlineExecutor(Executor):
    """Computes a range when its outcome is asked for."""

    computes_here = True

    def __init__(self, read: Callable[[range], BlockResult]) -> None:
        self._read = read
        self._submitted: deque[range] = deque()

    @property
    def has_room(self) -> bool:
        return not self._submitted

    def submit(self, positions: range) -> None:
        self._submitted.append(positions)

    def collect(self, *, has_more: bool) -> BlockResult | None:
        return self._read(self._submitted.popleft())

    def cancel(self) -> None:
        self._submitted.clear()
