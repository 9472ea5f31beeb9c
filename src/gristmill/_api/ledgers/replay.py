"""Compute the steps of a ledger again, and compare them with it."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from gristmill._api.plan_access import pipeline_of
from gristmill._checkpoint.ledger_file import (
    Ledger,
    LedgerSection,
    LedgerStep,
    batch_digest,
    cursor_digest,
    stream_digest,
)
from gristmill._checkpoint.state import Position, decode_state, encode_state
from gristmill._engine.inline_plan import inline_plan, inline_settings
from gristmill._engine.provenance.origin import Provenance
from gristmill._engine.run import Run
from gristmill._plan.sharding import has_contiguous_shards, shard_of, with_shard
from gristmill.errors import StateError
from gristmill.options import ShardOptions
from gristmill.types import Cursor, Element


class ReplayedStep(NamedTuple):
    """An element that was computed again, and its line in the ledger."""

    line: LedgerStep
    element: Element
    problem: str | None
    """How it differs from the ledger; `None` if it is bit-identical."""
    run: Run
    """The run that computed it, which is at the position after it."""

    def provenance(self) -> Provenance:
        """Return the records of the element, until the next step is computed."""
        return self.run.capture_provenance()()


def replay_ledger(pipeline: Any, ledger: Ledger, step: int | None = None) -> Iterator[ReplayedStep]:
    """Compute the elements of a ledger again, or one of them.

    Args:
        pipeline: The loader or dataset of the run.
        ledger: The ledger of a shard.
        step: The only step to compute.

    Raises:
        StateError: The ledger belongs to another pipeline, or has no such step.
    """
    found = step is None
    for segment in ledger.segments:
        steps = [line for line in segment.steps if step in (None, line.step)]
        if steps:
            found = True
            start = segment if step is None else _nearest(segment, steps[0])
            yield from _replay(pipeline, start, steps)
    if not found:
        there = _ranges(sorted({line.step for line in ledger.steps})) or "none"
        raise StateError(f"{ledger.path} has no step {step}. Its steps are {there}.")


def _nearest(segment: LedgerSection, wanted: LedgerStep) -> LedgerSection:
    """Return a segment that begins at a step, if the position before it is known."""
    at = [line.at for line in segment.steps if line.step == wanted.step - 1]
    if not at or at[0] is None:
        return segment
    body = segment.state
    names = ("source", "order", "steps", "epoch")
    state = replace(decode_state(body, None), positions=(Position(at[0]),))
    description = {name: body[name] for name in names if name in body}
    return replace(segment, first_step=wanted.step, state=encode_state(state, description))


def _replay(
    pipeline: Any, segment: LedgerSection, steps: list[LedgerStep]
) -> Iterator[ReplayedStep]:
    prefix = stream_digest(segment.state)
    run = _open(pipeline, segment)
    lines = {line.step: line for line in steps}
    try:
        run.restore(segment.state)
        for number in range(segment.first_step, steps[-1].step + 1):
            try:
                element = next(run.stream)
            except StopIteration:
                raise StateError(
                    f"The ledger has a step {number}, but the pipeline ends before it. Replay it "
                    "with the pipeline of the run."
                ) from None
            if number in lines:
                problem = _difference(lines[number], element, run.stream.cursor, prefix)
                yield ReplayedStep(lines[number], element, problem, run)
    finally:
        run.stream.close()


def _difference(line: LedgerStep, element: Element, cursor: Cursor, prefix: int) -> str | None:
    if batch_digest(element) != line.batch:
        return "the element is not that of the run"
    if cursor_digest(cursor, prefix) != line.state:
        return "the element is that of the run, but it was made of other records"
    return None


def _open(pipeline: Any, segment: LedgerSection) -> Run:
    """Return a run of the shard of a segment, in the calling thread."""
    plan, settings, description = pipeline_of(pipeline)
    own, is_contiguous = shard_of(plan), decode_state(segment.state, None).is_contiguous
    is_same = (own.shard_index, own.shard_count) == segment.shard
    if not is_same or has_contiguous_shards(plan) != is_contiguous:
        plan = with_shard(plan, ShardOptions(*segment.shard), is_contiguous=is_contiguous)
    return Run(inline_plan(plan), inline_settings(settings), description)


def _ranges(steps: list[int]) -> str:
    """Return some numbers as ranges.

    >>> _ranges([0, 1, 2, 5, 6])
    '0 to 2, 5 to 6'
    """
    ends = [after for before, after in pairwise(steps) if after > before + 1]
    firsts = [*steps[:1], *ends]
    lasts = [before for before, after in pairwise(steps) if after > before + 1] + steps[-1:]
    return ", ".join(f"{first} to {last}" for first, last in zip(firsts, lasts, strict=True))
