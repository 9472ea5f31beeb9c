"""Find the steps at which a record comes, where only tracing all elements shows it."""

from collections.abc import Iterator
from contextlib import closing

from gristmill._engine.provenance.coverage import TracedRun
from gristmill._engine.provenance.trace import PlanTracer
from gristmill._engine.settings import Settings
from gristmill._plan.nodes.base import Node


def trace_steps_of(
    plan: Node, settings: Settings, *, source_number: int, index: int
) -> Iterator[int]:
    """Return the steps of a stream at which a record comes, in order; endless if the stream is.

    Args:
        plan: The plan.
        settings: The settings of the run.
        source_number: The number of the source, as provenance counts them.
        index: The index of the record in the source.

    Raises:
        ProvenanceError: A step cannot be traced.
    """
    wanted = (source_number, index)
    with closing(TracedRun(plan, settings, None, PlanTracer())) as run:
        for step, rows in enumerate(run):
            if any((one.source_number, one.index) == wanted for row in rows for one in row):
                yield step
