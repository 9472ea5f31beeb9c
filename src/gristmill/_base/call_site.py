"""Find the line of user code that called into gristmill."""

import inspect
import os
import warnings
from pathlib import Path

from gristmill._addresses import strip_credentials
from gristmill._base.log_once import is_first
from gristmill._printable import printable
from gristmill.errors import GristmillWarning

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def call_site() -> str:
    """Return `file:line` of the nearest caller outside gristmill.

    >>> call_site().rpartition(":")[2].isdigit()
    True
    """
    return ":".join(map(str, user_line()))


def warn_user(message: str, line: tuple[str, int] | None = None) -> None:
    """Issue a `GristmillWarning` that points at the user's line.

    Args:
        message: The message.
        line: The file and the line, for a thread in which no user code runs. By default it is
            found.
    """
    file, number = user_line() if line is None else line
    shown = printable(strip_credentials(message), keep="\n")
    warnings.warn_explicit(shown, GristmillWarning, file, number)


def warn_user_once(topic: str, message: str, line: tuple[str, int] | None = None) -> None:
    """Issue a `GristmillWarning` that points at the user's line, once for each topic."""
    if is_first(f"warning: {topic}"):
        warn_user(message, line)


def user_line() -> tuple[str, int]:
    """Return the file and the line of the nearest caller outside gristmill."""
    frame = inspect.currentframe()
    assert frame is not None  # CPython has frames
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
