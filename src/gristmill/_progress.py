"""A bar on the terminal for what takes longer than a moment."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO

_QUIET_S = 1.0
"""What is done by then is not worth a bar."""

_EVERY_S = 0.1
_WIDTH = 24


@contextmanager
def progress(label: str, *, total: int, unit: str) -> Generator[Callable[[int], None]]:
    """Give a function that is told how much more is done; nothing is shown but on a terminal.

    >>> with progress("Reading", total=10, unit="records") as advance:
    ...     advance(10)
    """
    started = time.monotonic()
    shown = 0.0
    done = 0
    stream: TextIO | None = sys.stderr  # `None` under `pythonw`
    if stream is not None and not stream.isatty():
        stream = None

    def advance(count: int) -> None:
        nonlocal done, shown
        done += count
        now = time.monotonic()
        if stream is not None and now - started > _QUIET_S and now - shown > _EVERY_S:
            shown = now
            stream.write("\r" + bar(label, done, total, now - started, unit) + "\x1b[K")
            stream.flush()

    try:
        yield advance
    finally:
        if stream is not None and shown:
            stream.write("\r\x1b[K")
            stream.flush()


def bar(label: str, done: int, total: int, seconds: float, unit: str) -> str:
    """Draw a bar.

    >>> bar("Reading", 50, 200, 2.0, "records")
    'Reading ██████░░░░░░░░░░░░░░░░░░  25%  50/200 records  25 records/s  6 s left'
    """
    share = min(1.0, done / total) if total else 1.0
    full = round(share * _WIDTH)
    rate = done / max(seconds, 1e-9)
    left = (total - done) / rate if rate else 0.0
    return (
        f"{label} {'█' * full}{'░' * (_WIDTH - full)} {share:4.0%}  "
        f"{_amount(done, unit)}/{_amount(total, unit)} {_name(unit)}  "
        f"{_amount(rate, unit)} {_name(unit)}/s  {left:.0f} s left"
    )


def _amount(number: float, unit: str) -> str:
    return f"{number / 1e6:,.1f}" if unit == "B" else f"{number:,.0f}"


def _name(unit: str) -> str:
    return "MB" if unit == "B" else unit
