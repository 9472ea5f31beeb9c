"""The verdict on a run as HTML: what limits it, and what would change it."""

import re

from gristmill._metrics.explanation import Explanation, format_speedup
from gristmill._metrics.pages.html_table import escape
from gristmill._metrics.pages.page import fragment_html
from gristmill._metrics.stats import Stats

_GOOD, _FAIR = 0.1, 0.4
"""Shares of waiting up to which a run is shown in green, and in amber."""


def verdict_html(explanation: Explanation) -> str:
    """Return the verdict as a panel. Everything in it is escaped.

    >>> from gristmill._metrics.explanation import explain_stats
    >>> verdict_html(explain_stats(Stats()))
    '<div class="verdict"><p>Nothing was measured yet: take some elements first.</p></div>'
    """
    bottleneck = explanation.bottleneck
    if bottleneck is None:
        return f'<div class="verdict"><p>{escape(explanation)}</p></div>'
    parts = [
        f"<p>{escape(explanation.waiting_line())}</p>",
        f'<p><span class="tag">{escape(bottleneck.kind)}</span>'
        f"<b>{_code(bottleneck.explanation)}</b></p>",
    ]
    changes = [
        f"<li><b>{format_speedup(change.speedup)}</b><span>{_code(change.action)}. The limit is "
        f"then {escape(change.limit)}.</span></li>"
        for change in explanation.changes
    ]
    parts.append(
        f"<ul>{''.join(changes)}</ul>" if changes else f"<p>{_code(bottleneck.remedy)}</p>"
    )
    parts.append(f'<p class="soft">{escape(explanation.headspace_line())}</p>')
    return f'<div class="verdict">{"".join(parts)}</div>'


def verdict_fragment(explanation: Explanation) -> str:
    """Return the verdict with its style, for a cell of a notebook."""
    return fragment_html(verdict_html(explanation))


def waiting_class(stats: Stats) -> str:
    """Return the class of the color for a share of waiting: good, fair or bad."""
    if not stats.elapsed_s:
        return "soft"
    share = stats.waited_share
    return "good" if share <= _GOOD else "fair" if share <= _FAIR else "bad"


def _code(text: str) -> str:
    """Return text as HTML, with what is between backticks as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
