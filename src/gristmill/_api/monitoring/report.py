"""The report and the trace of a run, as loaders and iterators write them to files."""

import html
import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gristmill._api.monitoring.trace import write_trace
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._engine.settings import Settings
from gristmill._io.folders.write_output import write_output
from gristmill._metrics.timeline import StepSpan, Timeline, all_spans

if TYPE_CHECKING:
    from gristmill._metrics.explanation import Explanation


class ReportedRun(ABC):
    """A loader or an iterator that writes a report and a trace of what it did."""

    @abstractmethod
    def explain(self) -> "Explanation":
        """Explain how much of the time the caller waited, for what, and what would change it."""

    @abstractmethod
    def _timelines(self) -> list[Timeline]:
        """Return what its threads and workers did."""

    def _settings_shown(self) -> Mapping[str, object]:
        """Return the settings to show in the report."""
        return {}

    def _skipped_shown(self) -> Sequence[SkippedRecord]:
        """Return the skipped records to show in the report."""
        return ()

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a page about what it did; that of a loader is about all its iterators.

        It shows the verdict, what each step took, and charts over time. It is one HTML
        file without scripts, which needs no network.

        Args:
            path: The file. An existing one is replaced.

        Raises:
            PlanError: The file cannot be written.
        """
        write_report(
            path,
            title=repr(self),
            explanation=self.explain(),
            skipped=self._skipped_shown(),
            settings=self._settings_shown(),
            spans=all_spans(self._timelines()),
        )

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write which thread, worker or device transfer did what and when, for the last blocks.

        The file is in Chrome's trace format: open it with https://ui.perfetto.dev, or with
        `chrome://tracing`. It contains the last 2,048 blocks; that of a loader, those of its last
        iterators.

        Args:
            path: The file. An existing one is replaced.

        Raises:
            PlanError: The file cannot be written.
        """
        write_trace(path, title=repr(self), timelines=self._timelines())


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    explanation: "Explanation",
    skipped: Sequence[SkippedRecord] = (),
    settings: Mapping[str, object] | None = None,
    spans: Sequence[StepSpan] = (),
) -> None:
    """Write a page about a run.

    Args:
        path: The file. An existing one is replaced.
        title: What ran.
        explanation: What was measured.
        skipped: The records that were skipped.
        settings: How it ran.
        spans: What threads and workers did in the last blocks.

    Raises:
        PlanError: The file cannot be written.
    """
    rows = [(one.step, one.error, one.record, one.position) for one in skipped]
    page = _page(
        title=title, explanation=explanation, skipped=rows, settings=settings or {}, spans=spans
    )
    write_output(path, [page.encode("utf-8", "backslashreplace")], name="report")


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


def settings_table(settings: Settings) -> dict[str, object]:
    """Return the settings of a run by name, for a report."""
    return {
        "worker_count": None if settings.is_tuned else settings.multiprocessing.num_workers,
        "read_options": settings.read,
        "worker_options": settings.worker,
        "on_error": "raise" if settings.on_error is None else settings.on_error,
    }
