"""Run a plan again for one element, to find the records that it was made of."""

import json
import operator
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import SupportsIndex

from gristmill._checkpoint.state import Position
from gristmill._engine.inline_plan import inline_settings
from gristmill._engine.provenance.coverage import Counts, TracedRun, count_all
from gristmill._engine.provenance.origin import Provenance, RecordOrigin
from gristmill._engine.provenance.trace import PlanTracer, TraceMode
from gristmill._engine.provenance.trace_steps import origin_at
from gristmill._engine.provenance.traced import rows_of
from gristmill._engine.settings import Settings
from gristmill._engine.stream import Stream
from gristmill._plan.exclusion import held_streams
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.sampled import SampleNode
from gristmill.errors import ProvenanceError
from gristmill.types import Cursor


def trace_element(
    plan: Node, settings: Settings, before: Position, after: Cursor | None = None
) -> Provenance:
    """Return the provenance of the element that follows a position.

    Args:
        plan: The plan.
        settings: The settings of the run.
        before: The position before the element.
        after: The cursor after the element, if the run was there.

    Raises:
        ProvenanceError: A step cannot be traced, or yields other elements than before.
    """
    # Which records are skipped because they raise is known only from their values.
    mode = TraceMode(needs_values=settings.on_error is not None)
    traced = PlanTracer().trace(plan, mode)
    stream = Stream(traced, replace(inline_settings(settings), limits=None, learned=None))
    try:
        stream.seek(before)
        element = next(stream, None)
        cursor = stream.cursor
    finally:
        stream.close()
    if after is not None and _as_text(cursor) != _as_text(after):
        raise ProvenanceError(
            "The element was made of other records than the pipeline reads now: a filter, a flat "
            "map or the source returns something else than before. Make them depend on the "
            "record alone."
        )
    return Provenance(rows=rows_of(element))


def origins_at(sample: SampleNode, rows: list[list[int]]) -> list[RecordOrigin]:
    """Return the record with each number, and with the numbers of the outputs that follow it.

    Records count from 1: zeros, and numbers below, are padding.
    """
    return [
        replace(origin_at(sample, number - 1), outputs=tuple(outputs))
        for number, *outputs in rows
        if number > 0
    ]


def records_held(plan: Node, settings: Settings, cursor: Cursor) -> set[tuple[int, int]]:
    """Return the source and the index of each record that was read, but not yielded yet."""
    tracer = PlanTracer()
    tracer.trace(plan, TraceMode(needs_values=False))  # numbers the sources
    counts: Counts = Counter()
    for held in held_streams(plan, cursor):
        start = None if held.cursor is None else Position(held.cursor)
        with closing(TracedRun(held.node, settings, start, tracer)) as run:
            counts += count_all(iter(run))
    return {(number, index) for number, _, index in counts}


def _as_text(cursor: Cursor) -> str:
    """Return a cursor in a form in which lists equal tuples."""

    def as_number(value: object) -> object:
        return operator.index(value) if isinstance(value, SupportsIndex) else repr(value)

    return json.dumps(cursor, default=as_number, sort_keys=True)
