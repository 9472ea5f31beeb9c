"""`gristmill report`: write a page about what a loader of another process did so far."""

import argparse
import sys

from gristmill._api.monitoring.report import write_report
from gristmill._cli.processes import add_pid, choose_pid, read_runs
from gristmill._io.folders.write_output import is_standard_output
from gristmill._metrics.explanation import explain_stats
from gristmill._printable import printable
from gristmill.errors import PlanError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command `report` to its parser."""
    parser.description = (
        "Write an HTML page about what the busiest loader of another process did so far. The "
        "process must have been started with GRISTMILL_MONITOR=1, or have called "
        "`loader.monitor()`."
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
        raise PlanError(f"Process {pid} has no loader any more. Write the report while it runs.")
    run = max(runs, key=lambda run: run.stats.elapsed_s)
    explanation = explain_stats(run.stats)
    write_report(
        parsed.output,
        title=run.title,
        explanation=explanation,
        settings={"process": pid},
        spans=run.spans,
    )
    messages = sys.stderr if is_standard_output(parsed.output) else sys.stdout
    messages.write(f"{printable(str(explanation), keep=chr(10))}\n\nWrote {parsed.output}.\n")
