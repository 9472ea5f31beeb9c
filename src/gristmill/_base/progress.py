"""Show a progress bar on the terminal for operations that take longer than a second."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO

from gristmill._printable import printable

_DELAY_S = 1.0
"""Operations that finish earlier show no bar."""

_REFRESH_INTERVAL_S = 0.1
_BAR_WIDTH = 24


@contextmanager
def progress(label: str, *, total: int, unit: str) -> Generator[Callable[[int], None]]:
    """Show a progress bar on stderr while the `with` block runs.

    The block gets a function to call with the number of newly completed units. Nothing is shown
    unless stderr is a terminal.

    Args:
        label: The text in front of the bar.
        total: The number of units in the whole operation.
        unit: The name of the unit, in the plural. `"B"` is for bytes, which are shown in MB.

    >>> with progress("Reading", total=10, unit="records") as advance:
    ...     advance(10)
    """
    started = time.monotonic()
    last_shown = 0.0
    done = 0
    stream: TextIO | None = sys.stderr  # `None` under `pythonw`
    if stream is not None and not stream.isatty():
        stream = None

    def advance(count: int) -> None:
        nonlocal done, last_shown
        done += count
        now = time.monotonic()
        is_due = now - started > _DELAY_S and now - last_shown > _REFRESH_INTERVAL_S
        if stream is not None and is_due:
            last_shown = now
            stream.write("\r" + format_bar(label, done, total, now - started, unit) + "\x1b[K")
            stream.flush()

    try:
        yield advance
    finally:
        if stream is not None and last_shown:
            stream.write("\r\x1b[K")
            stream.flush()


def format_bar(label: str, done: int, total: int, seconds: float, unit: str) -> str:
    """Return a progress bar with the throughput and the estimated remaining time.

    >>> format_bar("Reading", 50, 200, 2.0, "records")
    'Reading ██████░░░░░░░░░░░░░░░░░░  25%  50/200 records  25 records/s  6 s left'
    """
    share = min(1.0, done / total) if total else 1.0
    num_full = round(share * _BAR_WIDTH)
    rate = done / max(seconds, 1e-9)
    remaining_s = (total - done) / rate if rate else 0.0
    return (
        f"{printable(label)} {'█' * num_full}{'░' * (_BAR_WIDTH - num_full)} {share:4.0%}  "
        f"{_format_amount(done, unit)}/{_format_amount(total, unit)} {_unit_name(unit)}  "
        f"{_format_amount(rate, unit)} {_unit_name(unit)}/s  {remaining_s:.0f} s left"
    )


def _format_amount(number: float, unit: str) -> str:
    return f"{number / 1e6:,.1f}" if unit == "B" else f"{number:,.0f}"


def _unit_name(unit: str) -> str:
    return "MB" if unit == "B" else unit
