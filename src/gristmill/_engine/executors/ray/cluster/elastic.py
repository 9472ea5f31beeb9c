"""Elastic size: how many actors to use, from how long the consumer waits."""

import time
from dataclasses import dataclass
from typing import final

from gristmill._engine.tuning.policy import TuningPolicy
from gristmill.options import RayOptions


@final
@dataclass
class ElasticSize:
    """The number of actors, within bounds. It adapts once a window has passed.

    Actors are added while the consumer waits for most of the time: twice as many, as the right
    number is not known. They are released an eighth at a time, but at least one: starting one takes
    seconds, and of a thousand, one more or less does not matter.

    Args:
        size: The number to begin with, which is also the smallest.
        maximum: The largest number; `None` for no limit.
        now: The time in seconds.
        policy: The tuning policy.
    """

    size: int
    maximum: int | None
    now: float
    policy: TuningPolicy

    def __post_init__(self) -> None:
        self._minimum = self.size
        self._begin = self.now
        self._waited_s = 0.0
        self._content_since: float | None = None

    @classmethod
    def within(cls, options: RayOptions, policy: TuningPolicy) -> "ElasticSize":
        """Return the smallest size that the user allows, as of now."""
        return cls(options.min_workers, options.max_workers, time.monotonic(), policy)

    def add_wait(self, seconds: float) -> None:
        """Add time for which the consumer waited."""
        self._waited_s += seconds

    def adapt(self, now: float, *, num_ready: int, num_free: int) -> int:
        """Return the number of actors to use from now on.

        Args:
            now: The time in seconds.
            num_ready: The number of actors that have started.
            num_free: How many more the cluster has room for.
        """
        elapsed_s = now - self._begin
        if elapsed_s < self.policy.elastic_window_s:
            return self.size
        share = self._waited_s / elapsed_s
        self._begin, self._waited_s = now, 0.0
        if share >= self.policy.elastic_grow_share:
            self._content_since = None
            if num_ready >= self.size:
                most = num_ready + num_free
                if self.maximum is not None:
                    most = min(most, self.maximum)
                self.size = max(self.size, min(2 * self.size, most))
        elif share > self.policy.elastic_release_share:
            self._content_since = None
        elif self._content_since is None:
            self._content_since = now
        elif now - self._content_since >= self.policy.elastic_release_s:
            self.size = max(self._minimum, self.size - max(1, self.size // 8))
            self._content_since = now
        return self.size
