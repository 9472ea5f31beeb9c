"""Table of the workers of a run, one by one: how busy each of them is."""

from collections import defaultdict
from collections.abc import Iterable

from gristmill._base.format_numbers import format_seconds
from gristmill._metrics.stats import Stats
from gristmill._metrics.timeline import TRANSFER_NAME, StepSpan
from gristmill._printable import printable

PROCESS_COLUMNS = ("worker", "threads", "busy", "block", "copied")
ACTOR_COLUMNS = ("actor", "node", "blocks", "MB", "busy", "network", "replaced")

NUM_TEXT: dict[tuple[str, ...], int] = {PROCESS_COLUMNS: 1, ACTOR_COLUMNS: 2}
"""How many columns, from the left, are text."""


def worker_rows(
    stats: Stats, spans: Iterable[StepSpan]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns, and the cells of each worker: Ray actors in total, or processes of late.

    For worker processes, only the last blocks are known: the share of their time in which any
    thread of the worker was busy, the mean time for a block, and its part for copying it into
    shared memory.
    """
    if stats.workers:
        return ACTOR_COLUMNS, [
            (
                *(printable(worker.name), printable(worker.node), f"{worker.num_blocks:,}"),
                f"{worker.output_bytes / 1e6:,.1f}",
                *(format_seconds(worker.busy_s), format_seconds(worker.network_wait_s)),
                str(worker.num_restarts),
            )
            for worker in stats.workers
        ]
    return PROCESS_COLUMNS, _process_rows(spans)


def _process_rows(spans: Iterable[StepSpan]) -> list[tuple[str, ...]]:
    by_worker: defaultdict[str, list[StepSpan]] = defaultdict(list)
    for span in spans:
        if span.track.worker:
            by_worker[span.track.worker].append(span)
    starts = [span.began_at for several in by_worker.values() for span in several]
    ends = [span.began_at + span.elapsed_s for several in by_worker.values() for span in several]
    window_s = max(ends, default=0.0) - min(starts, default=0.0)
    return [
        _process_row(worker, several, window_s)
        for worker, several in sorted(by_worker.items(), key=lambda item: _number(item[0]))
    ]


def _process_row(worker: str, spans: list[StepSpan], window_s: float) -> tuple[str, ...]:
    busy_s = _covered_s(spans)
    copies_s = [span.elapsed_s for span in spans if span.name == TRANSFER_NAME]
    num_blocks = max(1, len(copies_s))  # a block is copied once
    threads = {span.track.thread for span in spans}
    return (
        printable(worker),
        f"{len(threads):,}",
        f"{busy_s / window_s:.0%}" if window_s else "-",
        format_seconds(busy_s / num_blocks),
        format_seconds(sum(copies_s) / num_blocks),
    )


def _covered_s(spans: list[StepSpan]) -> float:
    """Return the time in which at least one of some spans ran, on whatever thread."""
    covered_s = end = 0.0
    for span in sorted(spans, key=lambda span: span.began_at):
        stop = span.began_at + span.elapsed_s
        covered_s += max(0.0, stop - max(span.began_at, end))
        end = max(end, stop)
    return covered_s


def _number(worker: str) -> tuple[int, str]:
    last = worker.rpartition(" ")[2]
    return (int(last) if last.isdecimal() else 0, worker)
