"""Statistics of all iterators of a loader, added up."""

import itertools
import weakref
from typing import final

from gristmill._metrics.counters import Counters
from gristmill._metrics.stats import Stats, add_stats


@final
class StatsTotal:
    """Adds up the counters of iterators, including those that no longer exist.

    >>> class Iterator: ...
    >>> total, iterator, counters = StatsTotal(), Iterator(), Counters([])
    >>> total.watch(iterator, counters)
    >>> counters.skipped = 3
    >>> del iterator
    >>> total.stats().num_skipped
    3
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._live: dict[int, Counters] = {}
        self._past = Stats()

    def watch(self, owner: object, counters: Counters) -> None:
        """Include `counters` as long as `owner` exists, and their last values afterwards."""
        number = next(self._numbers)
        self._live[number] = counters
        weakref.finalize(owner, self._retire, number).atexit = False

    def stats(self) -> Stats:
        """Return the sum over all iterators."""
        live = [counters.stats() for counters in list(self._live.values())]
        return add_stats([self._past, *live])

    def __reduce__(self) -> tuple[object, ...]:
        return StatsTotal, ()  # a copy in another process counts its own iterators

    def _retire(self, number: int) -> None:
        self._past = add_stats([self._past, self._live.pop(number).stats()])
