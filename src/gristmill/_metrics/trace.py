"""Traces of a run in Chrome's format, which Perfetto and `chrome://tracing` show."""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gristmill._base.version import VERSION
from gristmill._metrics.timeline import StepSpan, Track
from gristmill._printable import printable


def trace_json(spans: Iterable[StepSpan], *, title: str) -> bytes:
    """Return a trace with one track for each thread, worker and device transfer.

    Times are microseconds since the first span. Strings that may come from data are escaped.

    >>> span = StepSpan(Track("worker 0", "", 7), "Map f", 10.0, 0.5, cpu_s=0.5, waited_s=0.0)
    >>> events = json.loads(trace_json([span], title="a run"))["traceEvents"]
    >>> [(event["name"], event["dur"]) for event in events if event["ph"] == "X"]
    [('Map f', 500000.0)]

    Args:
        spans: What happened, in any order.
        title: What ran.
    """
    ordered = sorted(spans, key=lambda span: (span.began_at, -span.elapsed_s))
    start = ordered[0].began_at if ordered else 0.0
    track_ids = _track_ids(ordered)
    events = [*_names(track_ids), *(_event(span, track_ids[span.track], start) for span in ordered)]
    trace = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"title": printable(title), "gristmill": VERSION},
    }
    return json.dumps(trace).encode()


def _track_ids(spans: Sequence[StepSpan]) -> dict[Track, tuple[int, int]]:
    """Return the numbers of the process and of the thread of each track.

    Viewers show what has the same numbers as one track. Threads of the same name that follow each
    other, such as those of a pool that ended and began again, share one. Threads are numbered as
    they come: numbers of the system do not fit in the 32 bits that a viewer has for them.

    Args:
        spans: What happened, in the order in which it began.
    """
    ends: dict[Track, float] = {}
    begins: dict[Track, float] = {}
    for span in spans:
        begins.setdefault(span.track, span.began_at)
        ends[span.track] = max(ends.get(span.track, 0.0), span.began_at + span.elapsed_s)
    processes = {track.worker: track.number for track in ends if track.worker and not track.thread}
    processes[""] = os.getpid()
    used = set(processes.values())
    track_ids: dict[Track, tuple[int, int]] = {}
    last_of: defaultdict[tuple[str, str], list[Track]] = defaultdict(list)
    num_ids = 0
    for track, began_at in begins.items():
        if track.worker not in processes:  # on another machine, or its main thread did nothing
            processes[track.worker] = max(used) + 1
            used.add(max(used) + 1)
        several = last_of[track.worker, track.thread]
        ended = next((one for one in several if ends[one] <= began_at), None)
        if ended is None:
            num_ids += 1
            track_ids[track] = processes[track.worker], num_ids
        else:
            several.remove(ended)
            track_ids[track] = track_ids[ended]
        several.append(track)
    return track_ids


def _names(track_ids: dict[Track, tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """Yield the events that name processes and threads."""
    last = {ids: track for track, ids in track_ids.items()}
    for order, ((process, thread), track) in enumerate(last.items()):
        ids = {"ph": "M", "pid": process, "tid": thread}
        process_name = printable(track.worker or "this process")
        yield {**ids, "name": "process_name", "args": {"name": process_name}}
        name = printable(track.thread or track.worker)
        yield {**ids, "name": "thread_name", "args": {"name": name}}
        yield {**ids, "name": "thread_sort_index", "args": {"sort_index": order}}


def _event(span: StepSpan, ids: tuple[int, int], start: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": printable(span.name),
        "pid": ids[0],
        "tid": ids[1],
        "ts": round(1e6 * (span.began_at - start), 3),
        "dur": round(1e6 * span.elapsed_s, 3),
        "args": {
            "on a core, ms": round(1e3 * span.cpu_s, 3),
            "waiting, ms": round(1e3 * span.waited_s, 3),
        },
    }
