"""The record of a run as JSON and back, for programs that watch another process."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, cast

from gristmill._metrics.history import Sample
from gristmill._metrics.stats import RecentSkip, Stats, StepStats, WorkerStats
from gristmill._metrics.timeline import StepSpan, Timeline, Track
from gristmill.errors import StateError

_JSON_TYPES: dict[type, Any] = {str: str, int: int, float: (int, float), tuple: (list, tuple)}
"""The types of values in JSON, by the type in a record."""

_SENT_WORKS = 128
"""Blocks of a timeline that are sent: they take about a millisecond to encode."""


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
    """Return the last spans of the last timeline as values that JSON has.

    >>> track = Track("worker 0", "", 7)
    >>> spans_from_json([[["worker 0", "", 7], "Map f", 1.0, 0.5, 0.5, 0.0]])[0].track == track
    True
    """
    return [
        [list(span.track), *span[1:]]
        for timeline in timelines[-1:]
        for span in timeline.spans(_SENT_WORKS)
    ]


def spans_from_json(record: object) -> list[StepSpan]:
    """Return the spans in a record, which another process wrote.

    Raises:
        StateError: It is not such a record.
    """
    try:
        return [_span(*cast("list[Any]", one)) for one in cast("list[Any]", record)]
    except (TypeError, ValueError):
        raise _unknown_record() from None


def _span(track: list[Any], name: str, *seconds: float) -> StepSpan:
    worker, thread, number = track
    if not all(isinstance(text, str) for text in (worker, thread, name)):
        raise TypeError(name)
    began_at, elapsed_s, cpu_s, waited_s = map(float, seconds)
    if not (elapsed_s >= 0 and math.isfinite(began_at + elapsed_s)):
        raise ValueError(elapsed_s)
    return StepSpan(Track(worker, thread, int(number)), name, began_at, elapsed_s, cpu_s, waited_s)


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
