"""A traceback as plain data: taken in a worker, shown in the parent, where the sources are.

The source of a notebook's cell is known to the parent alone, so lines are looked up there first.
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

_MOST_FRAMES = 60
"""Frames that are shown: more of them nobody reads."""
_LONGEST_CHAIN = 10
"""Exceptions that are followed from one to its cause."""


@final
@dataclass(frozen=True, slots=True)
class Frame:
    """A line that was being executed."""

    file: str
    line: int | None
    name: str
    source: str
    columns: tuple[int | None, int | None, int | None]
    """The last line, the first and the last column of the expression."""


@final
@dataclass(frozen=True, slots=True)
class Trace:
    """Where an exception was raised, and what led to it."""

    title: str
    """What it is and says, after a word on how it led to the one above."""
    frames: tuple[Frame, ...]


def take_traces(error: BaseException) -> list[Trace]:
    """Give the traceback of an exception, then those of its causes; the user's frames are enough.

    >>> try:
    ...     int("a")
    ... except ValueError as error:
    ...     [trace] = take_traces(error)
    >>> trace.title, trace.frames[0].line
    ("ValueError: invalid literal for int() with base 10: 'a'", 2)
    """
    traces: list[Trace] = []
    for relation, one in _chain(error):
        frames = _frames(one)
        users = _users(frames)
        if relation == _WHILE and frames and not users:
            break  # something of ours was being handled, which tells the user nothing
        if not users and not relation and not isinstance(one, GristmillError):
            users = tuple(frames)  # a mistake of ours: then we need them
        traces.append(Trace(f"{relation}{kind_of(one)}: {text_of(one)}", users))
    return traces


def show_traces(traces: list[Trace], *, where: str) -> str:
    """Give the text of tracebacks under a first line that says `where`; "" if there is nothing."""
    if not any(trace.frames for trace in traces) and len(traces) < 2:
        return ""
    lines = [f"{where}:", *_show(traces[0].frames)]
    for trace in traces[1:]:
        lines += [trace.title, *_show(trace.frames)]
    return "\n".join(lines)


def kind_of(error: BaseException) -> str:
    """Name the type of an exception as tracebacks do."""
    kind = type(error)
    own = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """Give the message of an exception, whatever its `__str__` does."""
    try:
        return "".join((str(error), ""))  # a plain `str`, also where it is some other kind of it
    except Exception as failure:
        return f"<its message is not known: __str__ raised {type(failure).__name__}>"


_BECAUSE = "Caused by "
_WHILE = "While handling "


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    filter_counts: set[int] = set()
    relation, one = "", error
    while one is not None and id(one) not in filter_counts and len(filter_counts) <= _LONGEST_CHAIN:
        filter_counts.add(id(one))
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
    """Leave out our own frames on top."""
    first = next((n for n, frame in enumerate(frames) if not _is_ours(frame)), len(frames))
    return tuple(frames[first:])


def _is_ours(frame: Frame) -> bool:
    return frame.file.startswith(_PACKAGE)


def _show(frames: tuple[Frame, ...]) -> list[str]:
    shown = traceback.StackSummary.from_list([_summary(frame) for frame in frames]).format()
    if len(shown) > _MOST_FRAMES:
        half = _MOST_FRAMES // 2
        left_out = f"  ... {len(shown) - 2 * half} more ...\n"
        shown = [*shown[:half], left_out, *shown[-half:]]
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
