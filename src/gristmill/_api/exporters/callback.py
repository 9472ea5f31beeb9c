"""Exports to a function of the user's."""

from collections.abc import Callable

from gristmill._api.exporters.export import Export, poll
from gristmill._metrics.stats import HasStats, Stats
from gristmill.errors import PlanTypeError


def to_callback(
    source: HasStats, function: Callable[[Stats], object], *, every_s: float = 10.0
) -> Export:
    """Call a function with the statistics of a loader, an iterator or a feed at intervals.

    It is called in a thread, and once more when the export is closed. It must not hold the source.

    >>> from gristmill import load
    >>> seen = []
    >>> loader = load(range(8), num_epochs=1, batch_size=4)
    >>> with to_callback(loader, seen.append, every_s=60.0):
    ...     for batch in loader: pass
    >>> seen[-1].num_elements
    2

    Args:
        source: What to export.
        function: A function of `Stats`.
        every_s: Seconds between two calls.

    Returns:
        The export, which ends with `close()`, with a `with` block, or with the source.

    Raises:
        PlanError: `every_s` is too small.
        PlanTypeError: The source has no statistics, or the function cannot be called.
    """
    if not callable(function):
        raise PlanTypeError(
            f"`function` must be a function of `Stats`, got {function!r:.100}. Pass for example "
            "`print`."
        )
    return poll(source, function, every_s=every_s)
