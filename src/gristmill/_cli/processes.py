"""The processes that commands watch: which one, and what its loaders and feeds did."""

import argparse
from typing import Any, NamedTuple, cast

from gristmill._api.monitoring.monitor import read_records, watched_pids
from gristmill._metrics.explanation import explain_stats
from gristmill._metrics.pages.report import Report
from gristmill._metrics.record_json import settings_from_json, spans_from_json, stats_from_json
from gristmill._metrics.stats import Stats
from gristmill._metrics.timeline import StepSpan
from gristmill.errors import PlanError

PID_HELP = "the number of the process (default: the only one that can be watched)"


class WatchedRun(NamedTuple):
    """A loader, an iterator or a feed of another process."""

    title: str
    stats: Stats
    settings: dict[str, str]
    """How it runs, by the names of the settings."""
    spans: list[StepSpan]
    """What threads and workers did in the last blocks."""

    def report(self, pid: int) -> Report:
        """Return the page about it."""
        return Report(
            title=self.title,
            explanation=explain_stats(self.stats),
            settings={"process": pid, **self.settings},
            spans=self.spans,
        )


def add_pid(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the process to the parser of a command."""
    parser.add_argument("pid", metavar="PID", nargs="?", type=int, help=PID_HELP)


def choose_pid(pid: int | None) -> int:
    """Return the process to watch.

    Raises:
        PlanError: None was named, and there is none, or more than one.
    """
    if pid is not None:
        return pid
    pids = watched_pids()
    if len(pids) == 1:
        return pids[0]
    if not pids:
        raise PlanError(
            "No process can be watched. Start yours with `GRISTMILL_MONITOR=1`, and wait until it "
            "iterates over a loader or a dataset, or call `monitor()` of that in it."
        )
    raise PlanError(
        f"Several processes can be watched: {', '.join(map(str, pids))}. Pass one of them as PID."
    )


def read_runs(pid: int) -> list[WatchedRun]:
    """Return what the loaders, iterators and feeds of a process did.

    Raises:
        PlanError: It cannot be watched.
        StateError: It answers with something else.
    """
    records = read_records(pid)
    runs: list[WatchedRun] = []
    for record in cast("list[Any]", records) if isinstance(records, list) else [records]:
        fields = cast("dict[str, object]", record) if isinstance(record, dict) else {}
        title = str(fields.get("title", ""))
        stats, spans = stats_from_json(fields.get("stats")), spans_from_json(fields.get("spans"))
        settings = settings_from_json(fields.get("settings"))
        runs.append(WatchedRun(title, stats, settings, spans))
    return runs
