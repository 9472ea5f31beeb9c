import io
import sys

import pytest

from gristmill._base import progress as _progress
from gristmill._base.progress import format_bar, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that only advances when a test sets it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_progress, "time", clock)
    return clock


def test_a_short_operation_shows_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())

    with progress("Reading", total=10, unit="records") as advance:
        clock.now += 0.9
        advance(5)

    assert terminal.getvalue() == ""


def test_a_long_operation_shows_a_bar_and_removes_it(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())

    with progress("Reading", total=10, unit="records") as advance:
        clock.now += 2.0
        advance(4)
        shown = terminal.getvalue()
        advance(1)  # too soon after the last refresh
        assert terminal.getvalue() == shown

    assert shown == "\r" + format_bar("Reading", 4, 10, 2.0, "records") + "\x1b[K"
    assert terminal.getvalue() == shown + "\r\x1b[K"


def test_the_bar_is_removed_after_an_error(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())

    def fail() -> None:
        with progress("Reading", total=10, unit="records") as advance:
            clock.now += 2.0
            advance(4)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("stderr", [io.StringIO(), None])
def test_nothing_is_shown_without_a_terminal(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO | None
):
    monkeypatch.setattr(sys, "stderr", stderr)

    with progress("Reading", total=10, unit="records") as advance:
        clock.now += 2.0
        advance(4)

    assert stderr is None or stderr.getvalue() == ""


def test_bytes_are_shown_in_megabytes():
    assert "1.5/3.0 MB  0.5 MB/s  3 s left" in format_bar("a", 1_500_000, 3_000_000, 3.0, "B")


@pytest.mark.parametrize(("done", "total"), [(0, 0), (0, 10), (15, 10)])
def test_the_share_is_never_above_one_nor_undefined(done: int, total: int):
    bar = format_bar("a", done, total, 1.0, "records")

    assert bar.count("█") + bar.count("░") == 24
    assert f"{done}/{total}" in bar
