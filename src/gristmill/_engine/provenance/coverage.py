"""Count how often each record comes in some steps of a stream, without computing the elements."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, final

from gristmill._checkpoint.state import Position
from gristmill._engine.inline_plan import inline_plan, inline_settings
from gristmill._engine.provenance.trace import PlanTracer, TraceMode
from gristmill._engine.provenance.traced import Row, rows_of
from gristmill._engine.settings import Settings
from gristmill._engine.stream import Stream
from gristmill._plan.nodes.base import Node, Step
from gristmill._plan.nodes.hints import HintNode, all_nodes
from gristmill._plan.nodes.packing import ConcatSplitNode
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.nodes.steps import BatchNode
from gristmill._plan.nodes.stream import StatefulNode
from gristmill._plan.nodes.stream_steps import SlidingWindowNode
from gristmill._plan.traverse import bottom_of
from gristmill.types import Cursor

RecordKey: TypeAlias = tuple[int, int | None, int]
"""The number of a source, an epoch and the index of a record."""

Counts: TypeAlias = Counter[RecordKey]


_END: Any = object()


@final
class TracedRun:
    """The records in the elements of a plan starting at a position, element by element."""

    def __init__(
        self, plan: Node, settings: Settings, start: Position | None, tracer: PlanTracer
    ) -> None:
        mode = TraceMode(needs_values=settings.on_error is not None)
        traced = tracer.trace(inline_plan(plan), mode)
        inline = replace(inline_settings(settings), limits=None, learned=None)
        self._stream = Stream(traced, inline)
        self._is_in_order = isinstance(bottom_of(plan), SampleNode)
        if start is not None:
            self._stream.seek(start)

    @property
    def is_in_order(self) -> bool:
        """Whether no record of an epoch comes after one of the next epoch."""
        return self._is_in_order

    @property
    def position(self) -> Position:
        """The position after the last element."""
        return self._stream.position

    def __iter__(self) -> Iterator[tuple[Row, ...]]:
        while (element := next(self._stream, _END)) is not _END:
            yield rows_of(element)

    def close(self) -> None:
        """End the run."""
        self._stream.close()


def count_epochs(run: TracedRun, last_epochs: Mapping[int, int | None]) -> Counts:
    """Count the records of all epochs up to the last one of each source.

    Args:
        run: The records of each element.
        last_epochs: For each source, the last epoch that counts. When all sources are past it, the
            run ends.
    """
    counts: Counts = Counter()
    open_sources = set(last_epochs)
    num_later = 0
    for rows in run:
        for row in rows:
            for origin in row:
                number, epoch = origin.source_number, origin.epoch
                last = last_epochs.get(number, -1)
                if epoch is None or last is None or epoch <= last:
                    counts[number, epoch, origin.index] += 1
                    num_later = 0
                else:
                    open_sources.discard(number)
                    num_later += 1
        if num_later > (MAX_LATER if open_sources or not run.is_in_order else 0):
            break
    return counts


MAX_LATER = 100_000
"""Windows mix the records of two epochs, and a source of a mixture may never come again. After so
many records of later epochs, no more of the earlier ones are expected."""


def count_all(elements: Iterator[tuple[Row, ...]]) -> Counts:
    """Count the records of some elements."""
    counts: Counts = Counter()
    for rows in elements:
        add_records(counts, rows)
    return counts


def add_records(counts: Counts, rows: tuple[Row, ...], times: int = 1) -> None:
    """Add the records of an element to some counts."""
    for row in rows:
        for origin in row:
            counts[origin.source_number, origin.epoch, origin.index] += times


def count_held(plan: Node, cursor: Cursor, settings: Settings, tracer: PlanTracer) -> Counts:
    """Count the records that the step at the bottom of a stream holds: in a window, or in bins."""
    bottom = bottom_of(plan)
    held = bottom.held(cursor[0]) if isinstance(bottom, StatefulNode) else None
    if held is None:
        return Counter()
    start = None if held.cursor is None else Position(held.cursor)
    run = TracedRun(held.node, settings, start, tracer)
    try:
        return count_all(iter(run))
    finally:
        run.close()


def below_batches(plan: Node) -> Node:
    """Return the part of a plan below its first batch, whose positions are those between records.

    All of the plan if there is no batch.
    """
    node, below = plan, plan
    while isinstance(node, Step | HintNode):
        if isinstance(node, Step) and node.combines_elements:
            below = node.parent
        node = node.parent
    return below


def splits_records(plan: Node) -> bool:
    """Return whether an element can be in several rows, in how many depends on those before it."""
    return any(isinstance(node, ConcatSplitNode | SlidingWindowNode) for node in all_nodes(plan))


def keeping_remainders(plan: Node) -> Node:
    """Return a plan whose batches drop no remainder."""
    plan = plan.with_parents([keeping_remainders(parent) for parent in plan.parents])
    if isinstance(plan, BatchNode) and plan.drop_remainder:
        node: Any = replace(plan, drop_remainder=False)
        return node
    return plan
