"""Chart of what each thread and worker did in the last seconds, as SVG without scripts."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from gristmill._base.format_numbers import format_seconds
from gristmill._metrics.pages.html_table import escape
from gristmill._metrics.self_time import Interval, innermost, spans_by_track
from gristmill._metrics.timeline import StepSpan, Track

SHOWN_S = 2.0
"""The chart shows at most this many seconds, so that single blocks can be seen."""

MAX_TRACKS = 24

NUM_COLORS = 8
"""Steps have colors of their own as long as there are some."""

_COLUMNS = 480
_IDLE = ("wait for data", "wait for other hosts")

_Row: TypeAlias = tuple[str, str]
"""The worker and the thread of a row of the chart."""


def step_colors(names: Iterable[str]) -> dict[str, str]:
    """Return the class of the color of each step.

    >>> colors = step_colors(["reading", "wait for data", "Map f"])
    >>> colors["reading"], colors["Map f"], colors["wait for data"]
    ('c0', 'c1', 'idle')
    """
    work = [name for name in dict.fromkeys(names) if name not in _IDLE]
    colors = {name: f"c{min(number, NUM_COLORS - 1)}" for number, name in enumerate(work)}
    return {**colors, **dict.fromkeys(_IDLE, "idle")}


def timeline_chart(spans: Iterable[StepSpan], colors: Mapping[str, str]) -> str:
    """Return a row of colored intervals for each thread, as a figure of HTML.

    A column shows the step that took most of its time, if that is more than a quarter of it.
    Threads that followed each other under one name share a row. Of many threads, those that did
    most are shown.

    Args:
        spans: What happened.
        colors: The class of the color of each step.
    """
    tracks = spans_by_track(spans)
    end = max([one.began_at + one.elapsed_s for some in tracks.values() for one in some], default=0)
    start = max(end - SHOWN_S, min([some[0].began_at for some in tracks.values()], default=0))
    if end <= start:
        return ""
    found: dict[_Row, list[Interval]] = defaultdict(list)
    for track, several in tracks.items():
        found[track.worker, track.thread] += innermost(several)
    shown = {row: _columns(intervals, start, end) for row, intervals in found.items()}
    shown = {row: columns for row, columns in shown.items() if any(columns)}
    busiest = sorted(shown, key=lambda row: (not _is_main(row), shown[row].count("")))[:MAX_TRACKS]
    rows = "".join(
        f"<span>{escape(_label(row))}</span>{_marks(shown[row], colors)}"
        for row in sorted(busiest, key=_order)
    )
    names = sorted({name for row in busiest for name in shown[row] if name}, key=list(colors).index)
    num_more = len(shown) - len(busiest)
    note = f"<p class=soft>{num_more} more threads, which did less, are not shown.</p>"
    return (
        "<figure><figcaption>What each thread and worker did in the last "
        f"{format_seconds(end - start)}</figcaption>"
        f'<p class="key soft">{"".join(_key(name, colors) for name in names)}</p>'
        f'<div class="tracks">{rows}<div class="x"><span>{start - end:.1f} s</span>'
        f"<span>0 s</span></div></div>{note if num_more > 0 else ''}</figure>"
    )


def _is_main(row: _Row) -> bool:
    return row[1] in ("", "MainThread")


def _order(row: _Row) -> tuple[bool, list[tuple[str, int]], bool, list[tuple[str, int]]]:
    """Sort by process, its main thread first, and numbers in names as numbers."""
    worker, thread = row
    return bool(worker), _words(worker), not _is_main(row), _words(thread)


def _words(name: str) -> list[tuple[str, int]]:
    parts = name.replace("-", " ").replace("_", " ").split()
    return [("", int(word)) if word.isdecimal() else (word, 0) for word in parts]


def _label(row: _Row) -> str:
    name = Track(*row, 0).name.replace("MainThread", "your code")
    return name.replace("gristmill-", "").replace("grain-prefetch_", "thread ")


def _key(name: str, colors: Mapping[str, str]) -> str:
    return f'<span><i class="dot {colors[name]}"></i>{escape(name)}</span>'


def _columns(intervals: Sequence[Interval], start: float, end: float) -> list[str]:
    """Return the name of the step in each column, or an empty string."""
    per_s = _COLUMNS / (end - start)
    shares = [defaultdict[str, float](float) for _ in range(_COLUMNS)]
    for name, begin, stop, _ in intervals:
        first, last = per_s * (begin - start), per_s * (stop - start)
        for column in range(max(0, math.floor(first)), min(_COLUMNS, math.ceil(last))):
            shares[column][name] += min(last, column + 1) - max(first, column)
    return [
        max(share, key=share.__getitem__) if sum(share.values()) > 0.25 else "" for share in shares
    ]


def _marks(columns: Sequence[str], colors: Mapping[str, str]) -> str:
    marks: list[str] = []
    first = 0
    for column in range(1, _COLUMNS + 1):
        if column < _COLUMNS and columns[column] == columns[first]:
            continue
        if columns[first]:
            marks.append(
                f'<rect class="{colors[columns[first]]}" x="{first}" y="0" '
                f'width="{column - first}" height="10"/>'
            )
        first = column
    return (
        f'<svg viewBox="0 0 {_COLUMNS} 10" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(marks)}</svg>"
    )
