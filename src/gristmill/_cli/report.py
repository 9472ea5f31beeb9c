"""`gristmill report`: write a page about what a run of another process did so far."""

import argparse
import sys

from gristmill._cli.processes import add_pid, choose_pid, read_runs
from gristmill._io.folders.write_output import is_standard_output, write_output
from gristmill._printable import printable
from gristmill.errors import PlanError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command `report` to its parser."""
    parser.description = (
        "Write an HTML page about what the loader, iterator or feed of another process that runs "
        "for longest did so far. The process must have been started with GRISTMILL_MONITOR=1, or "
        "have called `monitor()` of what it iterates over."
    )
    add_pid(parser)
    parser.add_argument(
        "-o",
        "--output",
        default="report.html",
        metavar="FILE",
        help="the file to write (default: report.html)",
    )
    parser.set_defaults(run=_run, flags={"pid": "PID", "path": "--output"})


def _run(parsed: argparse.Namespace) -> None:
    pid = choose_pid(parsed.pid)
    runs = read_runs(pid)
    if not runs:
        raise PlanError(
            f"Process {pid} iterates over nothing at the moment. Write the report while it does, "
            "or call `report` of the loader or the iterator in it."
        )
    report = max(runs, key=lambda run: run.stats.elapsed_s).report(pid)
    write_output(parsed.output, [report.html().encode("utf-8", "backslashreplace")], name="report")
    messages = sys.stderr if is_standard_output(parsed.output) else sys.stdout
    shown = printable(str(report.explanation), keep="\n")
    messages.write(f"{shown}\n\nWrote {parsed.output}.\n")
