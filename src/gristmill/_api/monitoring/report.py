"""The report and the trace of a run, as loaders and iterators write them to files."""

import html
import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gristmill._api.monitoring.trace import write_trace
from gristmill._api.monitoring.watched import watch
from gristmill._engine.settings import Settings
from gristmill._metrics.stats import Stats
from gristmill._metrics.timeline import StepSpan, Timeline, all_spans
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.hints import ReadNode, WorkersNode, all_nodes

if TYPE_CHECKING:
    from gristmill._metrics.explanation import Explanation


class WatchedRun(NamedTuple):
    """A run, and how it relates to others."""

    run: object
    parts: Sequence[object]
    """The iterators whose steps are in its statistics, too."""
    is_total: bool
    """Whether it adds up what several iterators did."""
    record: Callable[[], dict[str, Any]]
    """Returns what is shown of it."""


class ReportedRun(ABC):
    """A loader or an iterator that writes a report and a trace of what it did."""

    @abstractmethod
    def stats(self) -> Stats:
        """Return what it has done so far."""

    @abstractmethod
    def explain(self) -> "Explanation":
        """Explain how much of the time the caller waited, for what, and what would change it."""

    @abstractmethod
    def _timelines(self) -> list[Timeline]:
        """Return what its threads and workers did."""

    def _settings_shown(self) -> Mapping[str, object]:
        """Return the settings to show in the report."""
        return {}

    def _title_shown(self) -> str:
        """Return what ran, for views of it."""
        return repr(self)

    def _parts(self) -> Sequence[object]:
        """Return the iterators whose steps are in its statistics, too."""
        return ()

    def _is_total(self) -> bool:
        """Return whether it adds up what several iterators did."""
        return False

    def _watched_run(self) -> WatchedRun:
        """Return what the monitor of this process needs."""
        return WatchedRun(self, self._parts(), self._is_total(), self._record)

    def _record(self) -> dict[str, Any]:
        """Return what a view of another process shows, as values that JSON has."""
        module: Any = importlib.import_module("gristmill._metrics.record_json")
        return {
            "title": self._title_shown(),
            "stats": module.stats_to_json(self.stats()),
            "settings": {name: str(value) for name, value in self._settings_shown().items()},
            "spans": module.spans_to_json(self._timelines()),
        }

    def monitor(self) -> str:
        """Let `gristmill top` and `gristmill report` of the same user read what this does.

        They connect to a Unix socket, which a thread of this process answers. Without this call,
        and without `GRISTMILL_MONITOR=1` in the environment, there is neither. Iterators that are
        made of it from now on, and what `feed` makes of them, are shown, too.

        Returns:
            The path of the socket.

        Raises:
            PlanError: Other users can enter the folder of the socket.
        """
        return watch(self)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a page about what it did; that of a loader is about all its iterators.

        It shows the verdict, what each step took, and charts over time. It is one HTML
        file without scripts, which needs no network.

        Args:
            path: The file. An existing one is replaced. Its folder must exist.

        Raises:
            PlanError: The file cannot be written.
        """
        write_report(
            path,
            title=self._title_shown(),
            explanation=self.explain(),
            settings=self._settings_shown(),
            spans=all_spans(self._timelines()),
        )

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write which thread, worker or device transfer did what and when, for the last blocks.

        The file is in Chrome's trace format: open it with https://ui.perfetto.dev, or with
        `chrome://tracing`. It contains the last 2,048 blocks; that of a loader, those of its last
        iterators.

        Args:
            path: The file. An existing one is replaced. Its folder must exist.

        Raises:
            PlanError: The file cannot be written.
        """
        write_trace(path, title=self._title_shown(), timelines=self._timelines())


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    explanation: "Explanation",
    settings: Mapping[str, object] | None = None,
    spans: Sequence[StepSpan] = (),
) -> None:
    """Write a page about a run.

    Args:
        path: The file. An existing one is replaced.
        title: What ran.
        explanation: What was measured.
        settings: How it ran.
        spans: What threads and workers did in the last blocks.

    Raises:
        PlanError: The file cannot be written.
    """
    page = _page(title=title, explanation=explanation, settings=settings or {}, spans=spans)
    writer: Any = importlib.import_module("gristmill._io.folders.write_output")
    writer.write_output(path, [page.encode("utf-8", "backslashreplace")], name="report")


def report_frame(
    *,
    title: str,
    explanation: "Explanation",
    settings: Mapping[str, object],
    spans: Sequence[StepSpan],
) -> str:
    """Return the same page as a part of a notebook's cell, which is closed at first.

    It is a document of its own, so that neither changes the style of the other, and it may not run
    scripts. Its button has the style of the representation above it in the cell.

    Args:
        title: What ran.
        explanation: What was measured.
        settings: How it ran.
        spans: What threads and workers did in the last blocks.
    """
    page = _page(title=title, explanation=explanation, settings=settings, spans=spans)
    return (
        '<div class="run"><details><summary>Report</summary><iframe sandbox '
        'style="width:100%;height:40rem;border:1px solid #98a2ad" '
        f'srcdoc="{html.escape(page)}"></iframe></details></div>'
    )


def _page(**content: Any) -> str:
    module: Any = importlib.import_module("gristmill._metrics.pages.report")  # most runs have none
    return module.Report(**content).html()


def settings_table(settings: Settings, plan: Node) -> dict[str, object]:
    """Return the settings of a run by name, for a report.

    Args:
        settings: Those of the whole run.
        plan: What runs. Steps of a dataset may have settings of their own.
    """
    shown: dict[str, object] = {
        "worker_count": None if settings.is_tuned else settings.multiprocessing.num_workers,
        "read_options": settings.read,
        "worker_options": settings.worker,
        "on_error": "raise" if settings.on_error is None else settings.on_error,
    }
    for node in all_nodes(plan):
        if isinstance(node, ReadNode):
            shown["read_options"] = node.options
        elif isinstance(node, WorkersNode):
            shown["worker_count"] = node.options.num_workers
            shown["worker_options"] = node.worker
    return shown


def run_records(runs: Sequence[ReportedRun]) -> list[dict[str, Any]]:
    """Return the records of the runs to show: none of them twice, as a part of another one.

    A feed stands for its source. A loader stands for its iterators, unless all those that exist
    are fed: then the feeds are shown.

    Args:
        runs: All runs that exist.
    """
    private: Sequence[Any] = runs
    watched: list[WatchedRun] = [run._watched_run() for run in private]  # noqa: SLF001 - of the class above
    fed = {id(part) for one in watched if not one.is_total for part in one.parts}
    shown = [
        one
        for one in watched
        if one.is_total and not (one.parts and fed.issuperset(map(id, one.parts)))
    ]
    hidden = fed | {id(part) for total in shown for part in total.parts}
    shown += [one for one in watched if not one.is_total and id(one.run) not in hidden]
    return [one.record() for one in shown]
