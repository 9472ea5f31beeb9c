"""Watch how many elements a filter leaves out: far too many is mostly a mistake."""

import logging
import threading
import time
from typing import final

from gristmill.errors import FilterError
from gristmill.plan import FilterLimits

logger = logging.getLogger("gristmill")

NUM_WATCHED = 1000
"""The share is of at least this many elements, as in Grain."""

SECONDS_BETWEEN_WARNINGS = 60.0

_warned_at: dict[str, float] = {}


@final
class Watch:
    """Counts, a block at a time, what comes to a filter and what passes it."""

    def __init__(self, label: str, limits: FilterLimits) -> None:
        self._label = label
        self._limits = limits
        self._seen = 0
        self._passed = 0
        self._turn = threading.Lock()  # threads may share a filter

    def count(self, seen: int, passed: int) -> FilterError | None:
        """Count a block; give the error that stands after it, if too few passed."""
        with self._turn:
            self._seen += seen
            self._passed += passed
            if self._seen < NUM_WATCHED:
                return None
            seen, passed = self._seen, self._passed
            share = (seen - passed) / seen
            if self._limits.raises_from and share >= self._limits.raises_from:
                return FilterError(
                    f"{_told(self._label, share, seen)} `filter_raise_threshold_ratio` is "
                    f"{self._limits.raises_from}. Filter the data beforehand, or raise the ratio "
                    "or set it to None in `DatasetOptions`."
                )
            self._seen = self._passed = 0
        if self._limits.warns_from and share >= self._limits.warns_from:
            self._warn(_told(self._label, share, seen))
        return None

    def _warn(self, told: str) -> None:
        now = time.monotonic()
        if now - _warned_at.get(self._label, -SECONDS_BETWEEN_WARNINGS) < SECONDS_BETWEEN_WARNINGS:
            return
        _warned_at[self._label] = now
        logger.warning(
            "%s If that is as meant, filter the data beforehand, or set "
            "`filter_warn_threshold_ratio=None` in `DatasetOptions`.",
            told,
        )


def _told(label: str, share: float, seen: int) -> str:
    return f"{label} left out {100 * share:.2f} % of the last {seen} elements."
