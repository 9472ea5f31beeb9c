"""Exports that run until they are closed or their source is gone, and those that poll it."""

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any, final

from gristmill._metrics.stats import HasStats, Stats
from gristmill.errors import PlanError, PlanTypeError

logger = logging.getLogger("gristmill")


@final
class Export:
    """An export that is under way. `close`, or the end of a `with` block, ends it.

    It does not keep its source alive, and ends with it.

    >>> from gristmill import load
    >>> from gristmill.exporters import to_callback
    >>> loader = load(range(10), num_epochs=1)
    >>> export = to_callback(loader, lambda stats: None)
    >>> export
    <Export: running>
    >>> export.close()
    >>> export
    <Export: ended>

    Args:
        source: What the statistics are of; when it is deleted, the export ends.
        end: Called once at the end.
    """

    def __init__(self, source: HasStats, end: Callable[[], object]) -> None:
        self._end = weakref.finalize(source, end)

    def __repr__(self) -> str:
        return f"<Export: {'running' if self._end.alive else 'ended'}>"

    def close(self) -> None:
        """End the export. Further calls do nothing."""
        self._end()

    def __enter__(self) -> "Export":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def weak_stats(source: HasStats) -> Callable[[], Stats | None]:
    """Return a function that returns the statistics of a source, or `None` if it is gone.

    Raises:
        PlanTypeError: The source has no statistics.
    """
    given: Any = source
    if not callable(getattr(given, "stats", None)):
        raise PlanTypeError(
            f"`source` must be a loader, an iterator or a feed, got {given!r:.100}. Pass what you "
            "iterate over; of a dataset, that is `iter(dataset)`."
        )
    reference = weakref.ref(source)

    def stats() -> Stats | None:
        alive = reference()
        return None if alive is None else alive.stats()

    return stats


def poll(source: HasStats, function: Callable[[Stats], object], *, every_s: float) -> Export:
    """Call a function with the statistics of a source at intervals, and a last time at the end.

    Args:
        source: The source.
        function: What to call, in a thread. If it raises, that is logged once, and calls continue.
        every_s: Seconds between two calls.

    Raises:
        PlanError: `every_s` is too small.
    """
    if not 0.01 <= every_s <= 86_400:
        raise PlanError(f"`every_s` must be from 0.01 to 86,400 seconds, got {every_s}.")
    polling = _Polling(weak_stats(source), function, every_s)
    polling.thread.start()
    return Export(source, polling.end)


@final
class _Polling:
    """A thread that reads the statistics of a source and passes them on."""

    def __init__(
        self,
        read: Callable[[], Stats | None],
        function: Callable[[Stats], object],
        every_s: float,
    ) -> None:
        self._read = read
        self._function = function
        self._every_s = every_s
        self._has_ended = threading.Event()
        self._last: Stats | None = None
        self._failures: set[str] = set()
        self.thread = threading.Thread(target=self._run, name="gristmill-export", daemon=True)

    def end(self) -> None:
        """End the thread, and pass on the last statistics."""
        self._has_ended.set()
        if threading.current_thread() is not self.thread:
            self.thread.join(timeout=5.0)
        self._pass_on()

    def _run(self) -> None:
        while not self._has_ended.wait(self._every_s):
            self._pass_on()

    def _pass_on(self) -> None:
        stats = self._last = self._read() or self._last
        if stats is None:
            return
        try:
            self._function(stats)
        except Exception as error:
            if repr(error) not in self._failures:
                self._failures.add(repr(error))
                logger.warning("An export of statistics failed.", exc_info=error)
