"""The counters of all iterators of a loader, taken together."""

import itertools
import weakref
from typing import Any, final

from gristmill.observe._counters import Counters
from gristmill.observe._stats import Stats, add_stats


@final
class Tally:
    """Adds up the counters of iterators, also of those that are gone.

    >>> class Iterator: ...
    >>> tally, iterator, counters = Tally(), Iterator(), Counters([])
    >>> tally.watch(iterator, counters)
    >>> counters.skipped = 3
    >>> del iterator
    >>> tally.stats().skipped
    3
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._live: dict[int, Counters] = {}
        self._past = Stats()

    def watch(self, owner: object, counters: Counters) -> None:
        """Count what `owner` does as long as it lives, and keep the result."""
        number = next(self._numbers)
        self._live[number] = counters
        weakref.finalize(owner, self._retire, number).atexit = False

    def stats(self) -> Stats:
        """Add up what all of them have counted."""
        live = [counters.stats() for counters in list(self._live.values())]
        return add_stats([self._past, *live])

    def __reduce__(self) -> tuple[Any, ...]:  # a copy in another process counts for itself
        return Tally, ()

    def _retire(self, number: int) -> None:
        self._past = add_stats([self._past, self._live.pop(number).stats()])
