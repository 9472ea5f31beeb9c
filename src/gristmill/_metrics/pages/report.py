"""A report of a run: HTML that needs no network, no script and no other file."""

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import final

import numpy as np

from gristmill._base.format_numbers import format_rate, format_seconds
from gristmill._base.format_size import format_size
from gristmill._base.threads.cores import num_cores
from gristmill._base.version import VERSION
from gristmill._metrics.explanation import Explanation
from gristmill._metrics.pages.charts import from_start, rates, step_chart, waiting_shares
from gristmill._metrics.pages.html_table import escape, escape_steps, table
from gristmill._metrics.pages.page import page_html
from gristmill._metrics.pages.steps import steps_html
from gristmill._metrics.pages.timeline_chart import step_colors, timeline_chart
from gristmill._metrics.pages.verdict import verdict_html, waiting_class
from gristmill._metrics.stats import Stats
from gristmill._metrics.timeline import StepSpan
from gristmill._metrics.worker_table import NUM_TEXT, worker_rows


@final
@dataclass(frozen=True, kw_only=True)
class Report:
    """What a page shows.

    >>> from gristmill._metrics.explanation import explain_stats
    >>> page = Report(title="<loader>", explanation=explain_stats(Stats())).html()
    >>> "&lt;loader&gt;" in page, "<script" in page
    (True, False)
    """

    title: str
    """What ran."""
    explanation: Explanation
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    """How it ran, by the names of the settings."""
    spans: Sequence[StepSpan] = ()
    """What threads and workers did in the last blocks."""

    def html(self) -> str:
        """Return a page. All strings in it, which may come from data, are escaped."""
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        end = f'<p class="soft">Written by gristmill {escape(VERSION)}, {now}</p>'
        return page_html(f"gristmill: {self.title}", self.body_html() + end)

    def body_html(self) -> str:
        """Return what the page shows, to be part of another one."""
        stats = self.explanation.stats
        names = [step.name for step in stats.steps]
        colors = step_colors([*names, *(span.name for span in self.spans)])
        bottleneck = self.explanation.bottleneck
        parts = [
            f'<p class="soft">gristmill · {escape_steps(self.title)}</p>',
            f'<h1 class="{waiting_class(stats)}">{escape(_headline(stats))}</h1>',
            _numbers(self.explanation),
            f"<h2>Verdict</h2>{verdict_html(self.explanation)}",
        ]
        if stats.steps and stats.num_elements:
            slowest = "" if bottleneck is None else bottleneck.step
            steps = steps_html(stats, slowest=slowest, spans=self.spans, colors=colors)
            parts.append(f"<h2>Steps</h2>{steps}")
        parts += [
            _charts(stats),
            _workers(stats, self.spans, colors),
            _skipped(stats),
            _settings(stats, self.settings),
        ]
        return "".join(parts)


def _headline(stats: Stats) -> str:
    if not stats.elapsed_s:
        return "Nothing was measured yet"
    return f"Waited for data {stats.waited_share:.0%} of the time"


def _numbers(explanation: Explanation) -> str:
    stats = explanation.stats
    size = stats.num_workers or stats.num_threads
    num_records = sum(step.num_records for step in stats.steps)
    numbers = {
        "elements": f"{stats.num_elements:,}",
        "elements per second": format_rate(explanation.elements_per_s).removesuffix("/s"),
        "elapsed": format_seconds(stats.elapsed_s),
        "for the first element": format_seconds(stats.first_wait_s),
        "records read": f"{num_records:,}" if num_records else "",
        "executor": f"{stats.executor} ({size})" if size else stats.executor,
    }
    cells = [
        f"<div><b>{escape(value)}</b>{escape(name)}</div>"
        for name, value in numbers.items()
        if value
    ]
    return f'<div class="numbers">{"".join(cells)}</div>'


def _charts(stats: Stats) -> str:
    if not stats.history:
        return ""
    history = from_start(stats.history)
    memory = [(one.at_s, float(one.memory_bytes)) for one in stats.history if one.memory_bytes]
    of_workers = [(one.at_s, float(one.worker_memory_bytes)) for one in stats.history]
    charts = [
        step_chart("Elements per second", rates(history), label=format_rate),
        step_chart(
            "Time that your code waited",
            waiting_shares(history),
            label="{:.0%}".format,
            maximum=1.0,
        ),
        step_chart("Memory of this process", memory, label=format_size) if memory else "",
        step_chart("Memory of its workers, without what is shared", of_workers, label=format_size)
        if any(used for _, used in of_workers)
        else "",
    ]
    return f'<h2>Over time</h2><div class="charts">{"".join(charts)}</div>'


def _workers(stats: Stats, spans: Sequence[StepSpan], colors: Mapping[str, str]) -> str:
    chart = timeline_chart(spans, colors)
    columns, rows = worker_rows(stats, spans)
    shown = table(columns, rows, num_text=NUM_TEXT[columns]) if rows else ""
    if not chart and not rows:
        return ""
    return f'<h2>Threads and workers</h2>{chart}<div class="wide">{shown}</div>'


def _skipped(stats: Stats) -> str:
    if not stats.num_skipped:
        return ""
    rows = stats.recent_skips
    shown = table(("step", "error", "record", "position"), rows, num_text=2) if rows else ""
    note = f"<p>The last {len(rows):,} are shown.</p>" if stats.num_skipped > len(rows) > 0 else ""
    return f'<h2>Skipped records: {stats.num_skipped:,}</h2>{note}<div class="wide">{shown}</div>'


def _settings(stats: Stats, settings: Mapping[str, object]) -> str:
    jax = sys.modules.get("jax")
    rows: list[tuple[str, object]] = [
        *settings.items(),
        ("workers started", stats.worker_start or "none"),
        ("workers replaced", stats.num_restarts),
        ("shared memory", format_size(stats.shared_memory_bytes)),
        ("cores", num_cores()),
        ("gristmill", VERSION),
        ("Python", platform.python_version()),
        ("NumPy", np.__version__),
        *([] if jax is None else [("JAX", jax.__version__)]),
        ("system", platform.platform()),
    ]
    shown = table(("name", "value"), rows, num_text=2)
    return f'<h2>Settings and versions</h2><div class="wide">{shown}</div>'
