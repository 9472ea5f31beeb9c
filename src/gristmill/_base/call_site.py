"""Find the line of user code that called into gristmill."""

import inspect
import os
import warnings
from pathlib import Path

from gristmill._addresses import strip_credentials
from gristmill.errors import GristmillWarning

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def call_site() -> str:
    """Return `file:line` of the nearest caller outside gristmill.

    >>> call_site().rpartition(":")[2].isdigit()
    True
    """
    return ":".join(map(str, _user_line()))


def warn_user(message: str) -> None:
    """Issue a `GristmillWarning` that points at the user's line."""
    file, line = _user_line()
    warnings.warn_explicit(strip_credentials(message), GristmillWarning, file, line)


def _user_line() -> tuple[str, int]:
    frame = inspect.currentframe()
    assert frame is not None  # CPython has frames
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
