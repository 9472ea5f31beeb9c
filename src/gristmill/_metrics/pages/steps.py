"""The steps of a run as a graph from the source to the caller, with what each of them took."""

from collections.abc import Mapping, Sequence

from gristmill._base.format_numbers import format_seconds
from gristmill._metrics.pages.html_table import escape, table
from gristmill._metrics.stats import Stats, StepStats, step_shares
from gristmill._metrics.step_table import COLUMNS, step_rows
from gristmill._metrics.timeline import StepSpan

_KEY = {
    "cpu": "on a core",
    "waited": "waiting",
    "lock": "waiting for the lock",
    "core": "waiting for a core",
}


def steps_html(
    stats: Stats,
    *,
    slowest: str = "",
    spans: Sequence[StepSpan] = (),
    colors: Mapping[str, str] | None = None,
) -> str:
    """Return a card for each step, in the order of the data, and a table.

    Args:
        stats: What the steps took.
        slowest: The name of the step that is the bottleneck, if one is.
        spans: What happened in the last blocks, for percentiles.
        colors: The class of the color that a step has in the timeline.
    """
    longest_s = max([step.elapsed_s for step in stats.steps], default=0.0) or 1.0
    cards = [
        _card(
            _dot(colors, step.name) + escape(step.name),
            f"{share:.0%} · {format_seconds(step.elapsed_s)}",
            _bar(step, longest_s),
            kind="slowest" if step.name == slowest else "",
        )
        for step, share in zip(stats.steps, step_shares(stats), strict=True)
    ]
    key = "".join(
        f'<span><i class="dot {kind}"></i>{name}</span>'
        for kind, name in _KEY.items()
        if any(_seconds(step)[kind] > 1e-6 for step in stats.steps)
    )
    return (
        f'<ol class="steps">{"".join([*cards, *_ends(stats)])}</ol><p class="key soft">{key}</p>'
        f'<div class="wide">{table(COLUMNS, step_rows(stats, spans))}</div>'
    )


def _ends(stats: Stats) -> list[str]:
    """Return cards for what comes after the steps, up to the code of the caller."""
    cards = [
        _card(name, format_seconds(seconds), kind="end")
        for name, seconds in (
            ("copies into shared memory", stats.transfer_s),
            ("placing batches on devices", stats.place_s),
            ("waiting for other hosts", stats.host_wait_s),
        )
        if seconds
    ]
    busy_s = stats.elapsed_s - stats.waited_s
    busy = f"busy {1 - stats.waited_share:.0%} · {format_seconds(busy_s)}"
    bar = f'<i class="cpu" style="width:{100 * (1 - stats.waited_share):.2f}%"></i>'
    return [*cards, _card("your code", busy, bar, kind="end")] if stats.elapsed_s else cards


def _card(name: str, numbers: str, bar: str = "", *, kind: str = "") -> str:
    """Return a card; `name` is HTML."""
    shown = f'<div class="bar">{bar}</div>' if bar else ""
    attribute = f' class="{kind}"' if kind else ""
    return (
        f'<li{attribute}><div class="name"><span>{name}</span><span>{escape(numbers)}</span></div>'
        f"{shown}</li>"
    )


def _dot(colors: Mapping[str, str] | None, name: str) -> str:
    return f'<i class="dot {colors[name]}"></i>' if colors and name in colors else ""


def _seconds(step: StepStats) -> dict[str, float]:
    return {
        "cpu": step.cpu_s,
        "waited": step.waited_s,
        "lock": step.interpreter_wait_s,
        "core": step.core_wait_s,
    }


def _bar(step: StepStats, longest_s: float) -> str:
    return "".join(
        f'<i class="{kind}" style="width:{100 * max(0.0, seconds) / longest_s:.2f}%"></i>'
        for kind, seconds in _seconds(step).items()
    )
