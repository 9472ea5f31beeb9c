"""Prefetch choice: whether a background thread should compute the next elements.

A consumer that does nothing but take elements gains nothing from a thread: the two take turns at
the interpreter lock. One that is busy between blocks gets the next block computed in that time.
"""

import enum
import math
from typing import NamedTuple

from gristmill._engine.tuning.measure import BlockStats
from gristmill._engine.tuning.policy import TuningPolicy


class ConsumerLoad(NamedTuple):
    """How long the consumer is busy between blocks, and how long it waits for them.

    Sums over past blocks, of which each weighs less than the one after it.
    """

    busy_s: float = 0.0
    waited_s: float = math.inf
    """Infinite before the first block."""
    last_wait_s: float = 0.0
    """Seconds that the consumer waited for the last block."""
    last_ready_at: float = 0.0
    """When it got the last block."""
    num_idle: int = 0
    """Blocks in a row that were requested when the consumer was not busy."""

    @property
    def is_busy(self) -> bool:
        """Whether a background thread pays off."""
        return not self.num_idle


def after_request(load: ConsumerLoad, requested_at: float, policy: TuningPolicy) -> ConsumerLoad:
    """Return the load once the consumer requests another block.

    A pause counts as at most the time of the block before it: a single long one, in which a user
    looks at a result, does not make a busy consumer.
    """
    pause_s = min(requested_at - load.last_ready_at, load.last_wait_s)
    busy_s = policy.busy_decay * load.busy_s + pause_s
    is_busy = busy_s / load.waited_s >= policy.busy_share
    return ConsumerLoad(
        busy_s,
        load.waited_s,
        load.last_wait_s,
        load.last_ready_at,
        0 if is_busy else load.num_idle + 1,
    )


def after_block(load: ConsumerLoad, stats: BlockStats, policy: TuningPolicy) -> ConsumerLoad:
    """Return the load once the consumer has got the block that it requested."""
    wait_s = max(stats.ready_at - stats.requested_at, 1e-9)
    if math.isinf(load.waited_s):
        return ConsumerLoad(0.0, wait_s, wait_s, stats.ready_at, load.num_idle)
    waited_s = policy.busy_decay * load.waited_s + wait_s
    return ConsumerLoad(load.busy_s, waited_s, wait_s, stats.ready_at, load.num_idle)


class ThreadAction(enum.Enum):
    """What to do about the background thread of a stream."""

    KEEP = enum.auto()
    START = enum.auto()
    """Start a thread, unless there is one that runs."""
    STOP = enum.auto()


def choose_thread(
    load: ConsumerLoad,
    policy: TuningPolicy,
    *,
    needs_thread: bool,
    has_thread: bool,
    is_requested: bool,
) -> ThreadAction:
    """Decide whether a stream should have a background thread.

    A consumer that is busy for a share x of the time of a block waits for 1 of it without a thread,
    and for 1 - x with one. So a thread that was started at x = 1/2 is stopped below 1/3, and does
    not come and go.

    Args:
        load: How busy the consumer is.
        policy: The tuning policy.
        needs_thread: Whether the stage has to be pulled by a thread of its own.
        has_thread: Whether there is a thread.
        is_requested: Whether the user requested it.
    """
    if needs_thread or load.is_busy:
        return ThreadAction.START
    if not has_thread:
        return ThreadAction.KEEP
    is_idle = load.num_idle > policy.stop_after_blocks
    is_cheap = load.last_wait_s <= policy.max_stop_block_s
    return ThreadAction.STOP if is_idle and is_cheap and not is_requested else ThreadAction.START
