"""Executors: compute the random-access part of a plan, range by range.

Any range of positions can be computed anywhere, at any time, and again. So an executor only has to
distribute the ranges and return the block results in the order of the ranges. How many it takes
ahead, and where they are computed, does not change the stream.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.timeline import Work


class Executor(ABC):
    """Computes ranges of positions and returns the block results in order.

    Only one thread at a time may call it, except for `interrupt` and `close`, which any thread may
    call.
    """

    def __init__(self, policy: TuningPolicy) -> None:
        self.policy = policy
        """The constants by which the executor, and the stage that uses it, adapt."""

    @property
    @abstractmethod
    def target_block_s(self) -> float:
        """Seconds that computing a range should take."""

    @property
    @abstractmethod
    def has_room(self) -> bool:
        """Whether to submit one more range."""

    @property
    def max_positions(self) -> int | None:
        """Maximum number of positions of a range, if limited."""
        return None

    @property
    def grid(self) -> int | None:
        """Ranges have to end at multiples of this many positions, if set."""
        return None

    @abstractmethod
    def submit(self, positions: range) -> None:
        """Accept a range to compute."""

    @abstractmethod
    def collect(self, *, has_more: bool) -> BlockResult | None:
        """Wait for the block result of the earliest range that was not collected yet.

        Args:
            has_more: Whether the caller has further ranges to submit.

        Returns:
            The result, with its `stats`. `None` if the caller has more ranges and there is now room
            for one.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Drop all ranges that were submitted."""

    def pending_work(self) -> Sequence[Work]:
        """Return what was or is being done for ranges that were not collected. For any thread."""
        return ()

    def interrupt(self) -> None:  # noqa: B027 - only executors that wait override it
        """Make `collect` in another thread return soon; `cancel` or `close` follows."""

    def close(self) -> None:  # noqa: B027 - only executors with threads or processes override it
        """End all threads and processes."""

    def dispose(self) -> None:  # noqa: B027 - only executors that hold resources override it
        """Release all resources, after `close`."""
