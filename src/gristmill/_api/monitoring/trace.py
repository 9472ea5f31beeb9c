"""Write the trace of a run to a file."""

import importlib
import os
from collections.abc import Sequence
from typing import Any

from gristmill._metrics.timeline import Timeline, all_spans


def write_trace(path: str | os.PathLike[str], *, title: str, timelines: Sequence[Timeline]) -> None:
    """Write what threads and workers did as a trace in Chrome's format.

    Args:
        path: The file. An existing one is replaced.
        title: What ran.
        timelines: What happened.

    Raises:
        PlanError: The file cannot be written.
    """
    module: Any = importlib.import_module("gristmill._metrics.trace")  # most runs have none
    writer: Any = importlib.import_module("gristmill._io.folders.write_output")
    trace = module.trace_json(all_spans(timelines), title=title)
    writer.write_output(path, [trace], name="trace")


def timelines_of(source: object) -> list[Timeline]:
    """Return the timelines of an iterator, or none if it is one of the user's."""
    found: Any = getattr(source, "_timelines", list)
    return found()
