"""Time of the steps of a timeline without the steps that ran inside of them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gristmill._metrics.timeline import StepSpan, Track

_Open = list[tuple[int, float]]


class Interval(NamedTuple):
    """A time in which a step ran on a track, and no step inside of it."""

    name: str
    start: float
    end: float
    span: int
    """The number of the span that it is a part of, among those of the track."""


def spans_by_track(spans: Iterable[StepSpan]) -> dict[Track, list[StepSpan]]:
    """Return the spans of each track in the order in which they began."""
    found: defaultdict[Track, list[StepSpan]] = defaultdict(list)
    for span in spans:
        found[span.track].append(span)
    for several in found.values():
        several.sort(key=lambda span: (span.began_at, -span.elapsed_s))
    return dict(found)


def innermost(spans: Sequence[StepSpan]) -> list[Interval]:
    """Return what ran at each moment on one track: the innermost span.

    >>> track = Track("", "MainThread", 1)
    >>> outer = StepSpan(track, "wait for data", 0.0, 3.0, 0.0, 0.0)
    >>> inner = StepSpan(track, "Map f", 1.0, 1.0, 0.0, 0.0)
    >>> [interval[:3] for interval in innermost([outer, inner])]
    [('wait for data', 0.0, 1.0), ('Map f', 1.0, 2.0), ('wait for data', 2.0, 3.0)]

    Args:
        spans: The spans of a track, in the order in which they began, the longer ones first.
    """
    found: list[Interval] = []
    opened: _Open = []
    at = 0.0

    def emit(number: int, end: float) -> None:
        nonlocal at
        if end > at:
            found.append(Interval(spans[number].name, at, end, number))
            at = end

    for number, span in enumerate(spans):
        while opened and opened[-1][1] <= span.began_at:
            emit(*opened.pop())
        if opened:
            emit(opened[-1][0], span.began_at)
        at = max(at, span.began_at)
        opened.append((number, span.began_at + span.elapsed_s))
    while opened:
        emit(*opened.pop())
    return found


def block_times(spans: Iterable[StepSpan]) -> dict[str, list[float]]:
    """Return the seconds that each step took for each of the last blocks, in ascending order.

    >>> span = StepSpan(Track("", "MainThread", 1), "Map f", 0.0, 2.0, 0.0, 0.0)
    >>> block_times([span])
    {'Map f': [2.0]}
    """
    found: defaultdict[str, list[float]] = defaultdict(list)
    for several in spans_by_track(spans).values():
        times: defaultdict[int, float] = defaultdict(float)
        for interval in innermost(several):
            times[interval.span] += interval.end - interval.start
        for number, seconds in times.items():
            found[several[number].name].append(seconds)
    return {name: sorted(times) for name, times in found.items()}


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the value that this share of some sorted values does not exceed.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5), percentile([1.0], 0.95)
    (2.0, 1.0)
    """
    return ascending[max(0, -(-round(1e6 * share * len(ascending)) // 1_000_000) - 1)]
