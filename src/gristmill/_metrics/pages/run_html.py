"""The steps of a run and the verdict as HTML, for notebooks."""

from gristmill._metrics.explanation import explain_stats
from gristmill._metrics.pages.html_table import escape_steps
from gristmill._metrics.pages.page import fragment_html
from gristmill._metrics.pages.steps import steps_html
from gristmill._metrics.pages.verdict import verdict_html
from gristmill._metrics.stats import Stats


def stats_html(stats: Stats, *, title: str, is_dataset: bool) -> str:
    """Return statistics as HTML, after a line about whose they are.

    Args:
        stats: The statistics.
        title: Whose they are.
        is_dataset: Whether settings are named as those of a dataset, not those of a loader.
    """
    head = f'<p class="soft">{escape_steps(title)}</p>' if title else ""
    body = verdict_html(explain_stats(stats, is_dataset=is_dataset))
    if stats.num_elements:
        body += f"<details><summary>Steps</summary>{steps_html(stats)}</details>"
    return fragment_html(head + body)
