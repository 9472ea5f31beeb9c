"""Measuring window: elements per second on one strategy, over some time."""

from typing import NamedTuple

from gristmill._engine.tuning.measure import BlockStats
from gristmill._engine.tuning.policy import TuningPolicy


class MeasuringWindow(NamedTuple):
    """The blocks of some time on one strategy, added up. A new one replaces it for each block.

    After a change of strategy, blocks are not counted until the strategy before has settled, the
    first block has come, and the new strategy has warmed up.
    """

    begins_at: float
    """When the stream began to run on the strategy, or the window before this one ended."""
    settled_at: float
    """Since when the strategy before does not disturb this one."""
    counts_from: float | None
    """Blocks that are requested from here on are counted; `None` before the first block."""
    ends_at: float
    """When the last block was ready."""
    num_all: int = 0
    """Elements since `begins_at`."""
    num_unsettled: int = 0
    """Elements up to `settled_at`."""
    num_elements: int = 0
    """Elements that are counted."""
    num_blocks: int = 0
    """Blocks that are counted and have elements: most blocks of records hold no complete batch."""
    pulling_s: float = 0.0
    """Time that the consumer waited for the blocks that are counted."""
    serial_s: float = 0.0
    """Time that these blocks would have taken inline."""
    waited_s: float = 0.0
    """Time of these in which they waited for a disk or a network."""

    @property
    def seconds(self) -> float:
        """The time in which blocks were counted."""
        return 0.0 if self.counts_from is None else max(0.0, self.ends_at - self.counts_from)

    @property
    def seconds_since_begin(self) -> float:
        """The time since `begins_at`."""
        return self.ends_at - self.begins_at

    @property
    def seconds_since_settled(self) -> float:
        """The time since `settled_at`."""
        return self.ends_at - self.settled_at

    @property
    def num_since_settled(self) -> int:
        """Elements since `settled_at`."""
        return self.num_all - self.num_unsettled

    @property
    def rate(self) -> float:
        """Elements per second."""
        return self.num_elements / max(self.seconds, 1e-9)

    @property
    def pulling_share(self) -> float:
        """Share of the time that the consumer waited."""
        return self.pulling_s / max(self.seconds, 1e-9)

    @property
    def serial_s_per_element(self) -> float:
        """Time that an element would have taken inline."""
        return self.serial_s / max(self.num_elements, 1)

    def is_full(self, policy: TuningPolicy) -> bool:
        """Return whether the window is long enough to compare rates."""
        return self.num_blocks >= policy.window_blocks and self.seconds >= policy.window_s


def window_after_switch(now: float) -> MeasuringWindow:
    """Return the window that begins when the stream has changed its strategy or position."""
    return MeasuringWindow(now, settled_at=now, counts_from=None, ends_at=now)


def next_window(window: MeasuringWindow) -> MeasuringWindow:
    """Return the window that follows another one on the same strategy."""
    end = window.ends_at
    return MeasuringWindow(end, settled_at=end, counts_from=end, ends_at=end)


def add_block(
    window: MeasuringWindow, stats: BlockStats, policy: TuningPolicy, *, is_settled: bool = True
) -> MeasuringWindow:
    """Return the window with another block.

    Args:
        window: The window so far.
        stats: What the block took, up to the consumer.
        policy: The tuning policy.
        is_settled: Whether the strategy before has finished what it had begun.
    """
    num_all = window.num_all + stats.num_elements
    ready_at = stats.ready_at
    if not is_settled:
        return MeasuringWindow(window.begins_at, ready_at, None, ready_at, num_all, num_all)
    counts_from = window.counts_from
    if counts_from is None or stats.requested_at < counts_from:
        if counts_from is None:
            counts_from = max(ready_at, window.settled_at + policy.warm_up_s)
        return MeasuringWindow(
            window.begins_at,
            window.settled_at,
            counts_from,
            ready_at,
            num_all,
            window.num_unsettled,
        )
    return MeasuringWindow(
        window.begins_at,
        window.settled_at,
        counts_from,
        ready_at,
        num_all,
        window.num_unsettled,
        window.num_elements + stats.num_elements,
        window.num_blocks + (stats.num_elements > 0),
        window.pulling_s + ready_at - stats.requested_at,
        window.serial_s + stats.serial_s,
        window.waited_s + stats.waited_s,
    )
