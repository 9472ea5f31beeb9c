"""Tracebacks as plain data: taken in a worker, formatted in the parent.

Only the parent knows the source of a notebook's cells, so source lines are looked up there first.
"""

import linecache
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

from gristmill.errors import GristmillError

_PACKAGE = str(Path(__file__).parents[3]) + os.sep

_MAX_FRAMES = 60
"""Frames that are shown. Endless recursion has a thousand."""
_MAX_CHAIN = 10
"""Exceptions that are followed from each to its cause."""


@final
@dataclass(frozen=True, slots=True)
class Frame:
    """A line that was being executed."""

    file: str
    line: int | None
    name: str
    source: str
    columns: tuple[int | None, int | None, int | None]
    """The last line, the first column and the last column of the expression."""


@final
@dataclass(frozen=True, slots=True)
class RemoteTraceback:
    """Where an exception was raised, and what led to it."""

    title: str
    """Its type and message, after its relation to the exception before: "Caused by "."""
    frames: tuple[Frame, ...]


def take_traces(error: BaseException) -> list[RemoteTraceback]:
    """Return the traceback of an exception and those of its causes, without our own frames.

    >>> try:
    ...     int("a")
    ... except ValueError as error:
    ...     [trace] = take_traces(error)
    >>> trace.title, trace.frames[0].line
    ("ValueError: invalid literal for int() with base 10: 'a'", 2)
    """
    traces: list[RemoteTraceback] = []
    for relation, one in _chain(error):
        frames = _frames(one)
        users = _users(frames)
        if relation == _WHILE and frames and not users:
            break  # an exception of our own was being handled, which does not help the user
        if not users and not relation and not isinstance(one, GristmillError):
            users = tuple(frames)  # a mistake of ours: our frames are needed to find it
        traces.append(RemoteTraceback(f"{relation}{kind_of(one)}: {message_of(one)}", users))
    return traces


def show_traces(traces: list[RemoteTraceback], *, where: str) -> str:
    """Format tracebacks under the title `where`; return "" if there is nothing to show."""
    if not any(trace.frames for trace in traces) and len(traces) < 2:
        return ""
    lines = [f"{where}:", *_show(traces[0].frames)]
    for trace in traces[1:]:
        lines += [trace.title, *_show(trace.frames)]
    return "\n".join(lines)


def kind_of(error: BaseException) -> str:
    """Return the name of the type of an exception, as tracebacks show it."""
    kind = type(error)
    own = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}"


def message_of(error: BaseException) -> str:
    """Return the message of an exception, even if its `__str__` raises."""
    try:
        return "".join((str(error), ""))  # a plain `str`, not a subclass of it
    except Exception as failure:
        return f"<unknown message: __str__ raised {type(failure).__name__}>"


_BECAUSE = "Caused by "
_WHILE = "While handling "


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Yield an exception and its causes, each with its relation to the one before."""
    seen: set[int] = set()
    relation, one = "", error
    while one is not None and id(one) not in seen and len(seen) <= _MAX_CHAIN:
        seen.add(id(one))
        yield relation, one
        if one.__cause__ is not None:
            relation, one = _BECAUSE, one.__cause__
        else:
            relation, one = _WHILE, None if one.__suppress_context__ else one.__context__


def _frames(error: BaseException) -> list[Frame]:
    return [
        Frame(
            file=frame.filename,
            line=frame.lineno,
            name=frame.name,
            source=frame.line or "",
            columns=(frame.end_lineno, frame.colno, frame.end_colno),
        )
        for frame in traceback.extract_tb(error.__traceback__)
    ]


def _users(frames: list[Frame]) -> tuple[Frame, ...]:
    """Return the frames from the first one of the user on."""
    first = next((n for n, frame in enumerate(frames) if not _is_ours(frame)), len(frames))
    return tuple(frames[first:])


def _is_ours(frame: Frame) -> bool:
    return frame.file.startswith(_PACKAGE)


def _show(frames: tuple[Frame, ...]) -> list[str]:
    shown = traceback.StackSummary.from_list([_summary(frame) for frame in frames]).format()
    if len(shown) > _MAX_FRAMES:
        half = _MAX_FRAMES // 2
        omitted = f"  ... {len(shown) - 2 * half} more ...\n"
        shown = [*shown[:half], omitted, *shown[-half:]]
    return [entry.rstrip("\n") for entry in shown]


def _summary(frame: Frame) -> traceback.FrameSummary:
    if frame.line is not None and linecache.getline(frame.file, frame.line):
        end_line, column, end_column = frame.columns
        return traceback.FrameSummary(
            frame.file,
            frame.line,
            frame.name,
            end_lineno=end_line,
            colno=column,
            end_colno=end_column,
        )
    return traceback.FrameSummary(frame.file, frame.line, frame.name, line=frame.source)
