"""The record of a run as JSON and back, for programs that watch another process."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from operator import itemgetter
from typing import Any, cast

from gristmill._metrics.history import Sample
from gristmill._metrics.stats import RecentSkip, Stats, StepStats, WorkerStats
from gristmill._metrics.timeline import StepSpan, Timeline, Track, all_spans
from gristmill.errors import StateError

_JSON_TYPES: dict[type, Any] = {str: str, int: int, float: (int, float), tuple: (list, tuple)}
"""The types of values in JSON, by the type in a record."""

RECENT_SPANS_S = 2.0
"""How far back spans are sent: as far as the chart shows them."""

MAX_SENT_SPANS = 4096
"""Spans that are sent at most. It takes about 10 ms to encode them."""


def stats_to_json(stats: Stats) -> dict[str, Any]:
    """Return statistics as values that JSON has.

    >>> stats_from_json(stats_to_json(Stats(num_elements=3))).num_elements
    3
    """
    return asdict(stats)


def stats_from_json(record: object) -> Stats:
    """Return the statistics in a record, which another process wrote.

    Raises:
        StateError: It is not such a record.
    """
    try:
        found = _checked(record, Stats)
        steps = tuple([StepStats(**_checked(step, StepStats)) for step in found.pop("steps")])
        history = tuple([_sample(sample) for sample in found.pop("history")])
        recent = tuple([_sample(sample) for sample in found.pop("recent")])
        skips = tuple([_skip(*skip) for skip in found.pop("recent_skips")])
        counts = tuple(map(int, found.pop("wait_counts")))
        workers = tuple([WorkerStats(**_checked(one, WorkerStats)) for one in found.pop("workers")])
        return Stats(
            **found,
            steps=steps,
            history=history,
            recent=recent,
            recent_skips=skips,
            wait_counts=counts,
            workers=workers,
        )
    except (KeyError, TypeError, ValueError):
        raise _unknown_record() from None


def spans_to_json(timelines: Sequence[Timeline]) -> list[Any]:
    """Return the spans of the last seconds of several timelines as values that JSON has.

    The tracks come first, then the names, then what happened, by their numbers, with times in
    microseconds: encoding them must not take much of the time of the process.

    >>> spans_to_json([])
    [[], [], 0.0, []]
    """
    spans = all_spans(timelines)
    end = max([span.began_at + span.elapsed_s for span in spans], default=0.0)
    recent = [span for span in spans if span.began_at + span.elapsed_s >= end - RECENT_SPANS_S]
    recent = sorted(recent, key=_began_at)[-MAX_SENT_SPANS:]
    start = recent[0].began_at if recent else 0.0
    tracks: dict[Track, int] = {}
    names: dict[str, int] = {}
    rows = [
        (
            tracks.setdefault(track, len(tracks)),
            names.setdefault(name, len(names)),
            round(1e6 * (began_at - start)),
            round(1e6 * elapsed_s),
            round(1e6 * cpu_s),
            round(1e6 * waited_s),
        )
        for track, name, began_at, elapsed_s, cpu_s, waited_s in recent
    ]
    return [list(tracks), list(names), start, rows]


_began_at = itemgetter(2)


def spans_from_json(record: object) -> list[StepSpan]:
    """Return the spans in a record, which another process wrote.

    >>> record = [[["worker 0", "", 7]], ["Map f"], 1.0, [[0, 0, 500_000, 250_000, 0, 0]]]
    >>> [(span.track.name, span.name, span.began_at) for span in spans_from_json(record)]
    [('worker 0', 'Map f', 1.5)]

    Raises:
        StateError: It is not such a record.
    """
    try:
        tracks, names, start, rows = cast("list[Any]", record)
        known = [_track(*cast("list[Any]", track)) for track in tracks]
        return [_span(known[int(row[0])], names[row[1]], start, *row[2:]) for row in rows]
    except (TypeError, ValueError, LookupError):
        raise _unknown_record() from None


def _track(worker: object, thread: object, number: Any) -> Track:
    if not (isinstance(worker, str) and isinstance(thread, str)):
        raise TypeError(worker)
    return Track(worker, thread, int(number))


def _span(track: Track, name: object, start: float, *micros: float) -> StepSpan:
    began_s, elapsed_s, cpu_s, waited_s = (float(one) / 1e6 for one in micros)
    began_at = float(start) + began_s
    if not isinstance(name, str) or not (elapsed_s >= 0 and math.isfinite(began_at + elapsed_s)):
        raise ValueError(name)
    return StepSpan(track, name, began_at, elapsed_s, cpu_s, waited_s)


def settings_from_json(record: object) -> dict[str, str]:
    """Return the settings in a record, which another process wrote.

    Raises:
        StateError: It is not such a record.
    """
    if not isinstance(record, dict):
        raise _unknown_record()
    settings = cast("dict[object, object]", record)
    return {str(name): str(value) for name, value in settings.items()}


def _skip(step: object, error: object, record: object, position: object) -> RecentSkip:
    index = None if record is None else int(cast(int, record))
    return RecentSkip(str(step), str(error), index, int(cast(int, position)))


def _unknown_record() -> StateError:
    return StateError(
        "The record of another process is not one that this version of gristmill writes. Use "
        "the same version in both."
    )


def _checked(record: object, kind: type[Stats | StepStats | WorkerStats]) -> dict[str, Any]:
    """Return the fields of a record, whose types must be those of their defaults."""
    values = cast("Mapping[str, Any]", record)
    found: dict[str, Any] = {}
    for one in fields(kind):
        value = values[one.name]
        default: object = "" if one.name in ("name", "node") else one.default
        wanted = _JSON_TYPES[type(default)]
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise TypeError(one.name)
        found[one.name] = value
    return found


def _sample(sample: object) -> Sample:
    at_s, num_elements, waited_s, *memory = cast("list[Any]", sample)
    own_bytes, worker_bytes = map(int, memory)
    return Sample(float(at_s), int(num_elements), float(waited_s), own_bytes, worker_bytes)
