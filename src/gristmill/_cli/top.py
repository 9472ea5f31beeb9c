"""`gristmill top`: show what the loaders of another process do, as they do it."""

import argparse
import contextlib
import importlib
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from gristmill._base.extras import load_extra
from gristmill._base.format_numbers import count_of, format_rate
from gristmill._base.format_size import format_size
from gristmill._cli.processes import WatchedRun, add_pid, choose_pid, read_runs
from gristmill._metrics.explanation import explain_stats
from gristmill._metrics.pages.charts import rates, waiting_shares
from gristmill._metrics.stats import Stats, shorten_name
from gristmill._metrics.step_table import COLUMNS, step_rows
from gristmill._metrics.worker_table import NUM_TEXT, worker_rows
from gristmill._printable import printable
from gristmill.errors import PlanError

_LEVELS = "▁▂▃▄▅▆▇█"
_CHART_WIDTH = 30
_BAR_WIDTH = 20

_COLORS = {"CPU": "blue", "waiting": "yellow", "lock": "magenta", "no core": "bright_black"}
"""The colors of what a step spends its time on, by the heads of the columns."""

_LEAST_IMPORTANT = ("time", "p50", "alone", "no core", "lock", "p95", "CPU", "waiting")
"""Narrow terminals leave out the first of these columns. The bar shows the times, too."""

_LEAST_NAME = 24
"""The names of steps get at least this many characters, as long as a column can be left out."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command `top` to its parser."""
    parser.description = (
        "Show what the loaders, iterators and feeds of another process do: the share of waiting, "
        "the rate, each step, and the verdict. The process must have been started with "
        "GRISTMILL_MONITOR=1, or have called `monitor()` of what it iterates over. "
        "Ctrl-C ends the display, not the process."
    )
    add_pid(parser)
    parser.add_argument("--once", action="store_true", help="print the present state, and end")
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="S", help="seconds between updates"
    )
    parser.add_argument(
        "--web",
        action="store_true",
        help="serve a page that updates itself, on this machine only, and print its address",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="the port of the page (default: one that is free)",
    )
    parser.set_defaults(run=_run, flags={"pid": "PID", "interval": "--interval", "port": "--port"})


def _run(parsed: argparse.Namespace) -> None:
    if not 0.05 <= parsed.interval <= 3600:
        raise PlanError(f"`interval` must be from 0.05 to 3600 seconds, got {parsed.interval}.")
    if not 0 <= parsed.port < 65536:
        raise PlanError(f"`port` must be from 0 to 65535, got {parsed.port}.")
    if parsed.web:
        pid = choose_pid(parsed.pid)
        read_runs(pid)  # an error is shown here, not on the page
        web: Any = importlib.import_module("gristmill._cli.web")
        web.serve_page(pid, port=parsed.port, interval_s=parsed.interval)
        return
    console = load_extra("rich.console", extra="progress", wanted_by="`gristmill top`").Console()
    pid = choose_pid(parsed.pid)
    shown = render(pid, read_runs(pid), width=console.width)
    if not parsed.once and console.is_terminal:
        shown = _follow(pid, shown, console, interval_s=parsed.interval)
    console.print(shown)


def _follow(pid: int, shown: Any, console: Any, *, interval_s: float) -> Any:
    """Show a process until it ends, or Ctrl-C; return what was shown last."""
    rich: Any = load_extra("rich.live", extra="progress", wanted_by="`gristmill top`")
    with (
        contextlib.suppress(KeyboardInterrupt),
        rich.Live(shown, console=console, screen=True, vertical_overflow="crop") as live,
    ):
        while True:
            time.sleep(interval_s)
            try:
                runs = read_runs(pid)
            except PlanError:
                sys.stderr.write(f"Process {pid} has ended.\n")
                break
            shown = render(pid, runs, width=console.width)
            live.update(shown, refresh=True)
    return shown


def render(pid: int, runs: Sequence[WatchedRun], *, width: int = 100) -> Any:
    """Return what is shown of a process, for rich. Strings of the process are never markup.

    Args:
        pid: The process.
        runs: What its loaders did.
        width: The number of characters in a line. Narrow terminals get fewer columns.
    """
    rich: Any = load_extra("rich.console", extra="progress", wanted_by="`gristmill top`")
    text: Any = load_extra("rich.text", extra="progress", wanted_by="`gristmill top`")
    count = count_of(len(runs), "run") if runs else "which iterates over nothing at the moment"
    parts: list[Any] = [text.Text(f"process {pid}, {count}", style="dim")]
    for run in runs:
        title = text.Text(printable(run.title), style="bold", no_wrap=True, overflow="ellipsis")
        lines = str(explain_stats(run.stats)).splitlines()
        parts += ["", title, _headline(run.stats)]
        parts += [text.Text(line, style=_style_of(line)) for line in lines]
        parts += ["", _step_table(run, width)]
        columns, rows = worker_rows(run.stats, run.spans)
        if rows:
            parts += ["", _table(columns, rows, num_text=NUM_TEXT[columns])]
        parts += ["", text.Text(_numbers(run.stats), style="dim")]
    return rich.Group(*parts)


def _headline(stats: Stats) -> Any:
    """Return the share of waiting as a bar, and the rates of the last minute."""
    text: Any = load_extra("rich.text", extra="progress", wanted_by="`gristmill top`")
    share = _recent_wait(stats)
    color = "green" if share <= 0.1 else "yellow" if share <= 0.4 else "red"
    num_full = round(_BAR_WIDTH * min(1.0, share))
    speeds = sparkline([rate for _, rate in rates(stats.recent)], width=_CHART_WIDTH)
    return text.Text.assemble(
        ("━" * num_full, color),
        ("━" * (_BAR_WIDTH - num_full), "dim"),
        (f" waiting {share:.0%}", f"bold {color}"),
        ("  last minute ", "dim"),
        (speeds, "cyan"),
    )


def _style_of(line: str) -> str:
    if line.startswith("Bottleneck"):
        return "bold yellow"
    return "green" if line.startswith("- ") else ""


def _step_table(run: WatchedRun, width: int) -> Any:
    """Return a row for each step, with a bar of what it spent its time on."""
    text: Any = load_extra("rich.text", extra="progress", wanted_by="`gristmill top`")
    cells_of = step_rows(run.stats, run.spans)
    kept, name_width = _fit(cells_of, width)
    longest_s = max([step.elapsed_s for step in run.stats.steps], default=0.0) or 1.0
    rows: list[list[Any]] = []
    for step, (name, *cells) in zip(run.stats.steps, cells_of, strict=True):
        parts = (step.cpu_s, step.waited_s, step.interpreter_wait_s, step.core_wait_s)
        bar = text.Text()
        at_s = drawn = 0
        for seconds, color in zip(parts, _COLORS.values(), strict=True):
            at_s += max(0.0, seconds)
            end = round(_BAR_WIDTH * min(1.0, at_s / longest_s))
            bar.append("█" * (end - drawn), color)
            drawn = max(drawn, end)
        shown = [cell for head, cell in zip(COLUMNS[1:], cells, strict=True) if head in kept]
        rows.append([shorten_name(name, name_width), bar, *shown])
    table = _table([COLUMNS[0], "", *kept], rows, num_text=2)
    for number, head in enumerate(kept, start=2):
        table.columns[number].header_style = f"bold {_COLORS.get(head, '')}".strip()
    return table


def _fit(rows: Sequence[Sequence[str]], width: int) -> tuple[list[str], int]:
    """Return the columns of numbers that fit in a line, and the width of the names of steps."""
    columns = zip(COLUMNS, *rows, strict=True)
    widths = {column[0]: max(map(len, column)) for column in columns}
    name_width = widths.pop(COLUMNS[0])
    left_out = {_LEAST_IMPORTANT[0]}

    def rest() -> int:
        kept = [column for head, column in widths.items() if head not in left_out]
        return width - _BAR_WIDTH - 2 - sum(kept) - 2 * len(kept)

    for head in _LEAST_IMPORTANT[1:]:
        if rest() >= min(name_width, _LEAST_NAME):
            break
        left_out.add(head)
    kept = [head for head in widths if head not in left_out]
    return kept, max(8, min(name_width, rest()))


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, num_text: int = 1) -> Any:
    """Return a table, whose first columns are text. Long names are cut to one line."""
    rich: Any = load_extra("rich.table", extra="progress", wanted_by="`gristmill top`")
    text: Any = load_extra("rich.text", extra="progress", wanted_by="`gristmill top`")
    shown = rich.Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        justify = "right" if number >= num_text else "left"
        shown.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
    for row in rows:
        shown.add_row(*[text.Text(cell) if isinstance(cell, str) else cell for cell in row])
    return shown


def _numbers(stats: Stats) -> str:
    last = stats.recent[-1] if stats.recent else None
    own_bytes, worker_bytes = (last.memory_bytes, last.worker_memory_bytes) if last else (0, 0)
    of_workers = f", {format_size(worker_bytes)} in its workers" if worker_bytes else ""
    size = stats.num_workers or stats.num_threads
    return (
        f"{stats.executor}{f' ({size})' if size else ''}: "
        f"{count_of(stats.num_blocks_ready, 'block')} ready, "
        f"{stats.num_blocks_in_flight} in flight, "
        f"{count_of(stats.num_restarts, 'worker')} replaced, "
        f"{count_of(stats.num_skipped, 'record')} skipped; "
        f"{format_size(own_bytes)} of memory in this process{of_workers}, "
        f"{format_size(stats.shared_memory_bytes)} shared"
    )


def _recent_wait(stats: Stats) -> float:
    """Return the share of the last minute that the caller waited."""
    shares = [share for _, share in waiting_shares(stats.recent)]
    return sum(shares) / len(shares) if shares else stats.waited_share


def sparkline(values: Sequence[float], *, width: int = 60) -> str:
    """Return the last values as a line of bars, and the last one as a rate.

    >>> sparkline([0.0, 5.0, 10.0])
    '▁▅█ 10.0/s'
    """
    shown = values[-width:]
    if not shown:
        return "-"
    largest = max(shown) or 1.0
    bars = [_LEVELS[round((len(_LEVELS) - 1) * max(0.0, value) / largest)] for value in shown]
    return f"{''.join(bars)} {format_rate(shown[-1])}"
