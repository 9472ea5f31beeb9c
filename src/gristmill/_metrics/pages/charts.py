"""Charts of a run over time, as SVG without scripts."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from gristmill._base.format_numbers import format_seconds
from gristmill._metrics.history import Sample
from gristmill._metrics.pages.html_table import escape

_WIDTH, _HEIGHT = 600, 100
_START = Sample(0.0, 0, 0.0, 0)


def rates(history: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return the elements per second between samples, each at the time of the later one.

    >>> rates([Sample(0.0, 0, 0.0, 0), Sample(2.0, 8, 1.0, 0)])
    [(2.0, 4.0)]
    """
    return [
        (after.at_s, (after.num_elements - before.num_elements) / (after.at_s - before.at_s))
        for before, after in pairwise(history)
        if after.at_s > before.at_s
    ]


def waiting_shares(history: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return the share of the time between samples that the caller waited.

    >>> waiting_shares([Sample(0.0, 0, 0.0, 0), Sample(2.0, 8, 1.0, 0)])
    [(2.0, 0.5)]
    """
    return [
        (after.at_s, min(1.0, (after.waited_s - before.waited_s) / (after.at_s - before.at_s)))
        for before, after in pairwise(history)
        if after.at_s > before.at_s
    ]


def from_start(history: Sequence[Sample]) -> list[Sample]:
    """Return the samples of a run after one of its start, when nothing had been done yet."""
    return [_START, *history]


def round_up(value: float) -> float:
    """Return 1, 2 or 5 times a power of ten that is at least as large, for the end of an axis.

    >>> round_up(0.0), round_up(37.0), round_up(160.0), round_up(0.15)
    (1.0, 50.0, 200.0, 0.2)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999))


def step_chart(
    title: str,
    points: Sequence[tuple[float, float]],
    *,
    label: Callable[[float], str],
    maximum: float | None = None,
) -> str:
    """Return a chart of values over time, as a figure of HTML; a sentence if there are too few.

    Each value is that of the time since the point before, or since the start of the run, so that
    it is drawn as a horizontal line.

    Args:
        title: What the chart shows.
        points: Times in seconds and values.
        label: A function that returns a value as text.
        maximum: The value at the upper edge. By default a round number above the largest one.
    """
    caption = f"<figcaption>{escape(title)}</figcaption>"
    last_s = points[-1][0] if points else 0.0
    if len(points) < 2 or last_s <= 0:
        return f"<figure>{caption}<p>Too short to show.</p></figure>"
    largest = round_up(max(value for _, value in points)) if maximum is None else maximum
    corners: list[str] = []
    x = 0.0
    for at_s, value in points:
        y = _HEIGHT * (1 - min(1.0, value / largest))
        corners.append(f"{x:.1f},{y:.1f}")
        x = _WIDTH * at_s / last_s
        corners.append(f"{x:.1f},{y:.1f}")
    line = " ".join(corners)
    levels = "".join(
        f'<line class="grid" x1="0" y1="{y}" x2="{_WIDTH}" y2="{y}"/>'
        for y in (0, _HEIGHT // 2, _HEIGHT)
    )
    values = "".join(f"<span>{escape(label(share * largest))}</span>" for share in (1, 0.5, 0))
    times = "".join(
        f"<span>{escape(format_seconds(share * last_s))}</span>" for share in (0, 0.5, 1)
    )
    return (
        f'<figure>{caption}<div class="plot"><div class="y">{values}</div>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}">{levels}'
        f'<polygon class="area" points="0,{_HEIGHT} {line} {_WIDTH},{_HEIGHT}"/>'
        f'<polyline class="line" points="{line}"/></svg>'
        f'<div class="x">{times}</div></div></figure>'
    )
