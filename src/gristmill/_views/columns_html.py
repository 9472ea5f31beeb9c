"""Columns as cards with charts, for pages."""

from collections.abc import Iterable

from gristmill._data.statistics.histogram import Histogram
from gristmill._data.statistics.leaf_statistics import show_numbers
from gristmill._metrics.pages.html_table import escape
from gristmill._views.columns import ColumnView

_MAX_CLASSES = 12
_WIDTH, _HEIGHT, _BOTTOM = 240, 70, 14


def column_cards(views: Iterable[ColumnView]) -> str:
    """Return a grid with a card for each column. Everything in it is escaped."""
    return f'<div class="grid">{"".join(map(_card, views))}</div>'


def histogram_svg(histogram: Histogram) -> str:
    """Return a chart of how often values are in each bin, without a script.

    >>> import numpy as np
    >>> from gristmill._data.statistics.histogram import histogram_of
    >>> histogram_svg(histogram_of(np.array([0.0, 1.0, 1.0]))).count("<rect")
    2
    """
    counts = histogram.counts.tolist()
    largest = max(counts)
    step = _WIDTH / len(counts)
    bars = "".join(
        f'<rect x="{number * step + 0.5:.1f}" y="{_HEIGHT - height:.1f}" '
        f'width="{max(step - 1, 0.5):.1f}" height="{height:.1f}">'
        f"<title>{count:,}</title></rect>"
        for number, count in enumerate(counts)
        if (height := max(1.0, _HEIGHT * count / largest) if count else 0.0)
    )
    low, high = show_numbers(histogram.low), show_numbers(histogram.high)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + _BOTTOM}" role="img" '
        f'aria-label="from {low} to {high}">{bars}'
        f'<text x="0" y="{_HEIGHT + _BOTTOM - 2}">{low}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + _BOTTOM - 2}" text-anchor="end">{high}</text></svg>'
    )


def _card(view: ColumnView) -> str:
    facts = "".join(f"<p>{escape(fact)}</p>" for fact in view.facts)
    missing = f'<p class="soft">missing: {escape(view.missing)}</p>' if view.missing else ""
    chart = ""
    if view.classes:
        chart = _class_bars(view)
    elif view.histogram is not None:
        chart = histogram_svg(view.histogram)
    return (
        f'<div class="card"><h3>{escape(view.name)}</h3>'
        f'<p class="soft">{escape(view.types)}</p>{missing}{facts}{chart}</div>'
    )


def _class_bars(view: ColumnView) -> str:
    largest = view.classes[0][1]
    bars = "".join(
        f'<div class="class"><span>{escape(name)}</span>'
        f'<i style="width:{100 * count / largest:.1f}%"></i><span>{count:,}</span></div>'
        for name, count in view.classes[:_MAX_CLASSES]
    )
    num_more = len(view.classes) - _MAX_CLASSES
    return bars + (f'<p class="soft">and {num_more:,} more</p>' if num_more > 0 else "")
