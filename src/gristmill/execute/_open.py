"""From a plan to stages: what is random access is read by ranges, the rest runs above, in order."""

import time
from collections.abc import Callable, Sequence

from gristmill.execute._batch import BatchStage, batch_reader
from gristmill.execute._block import Block
from gristmill.execute._executor import InlineExecutor
from gristmill.execute._feed import FeedStage
from gristmill.execute._filter import filter_step
from gristmill.execute._flat_map import flat_map_step
from gristmill.execute._map import map_step, map_with_index_step, random_map_step
from gristmill.execute._outcome import Outcome
from gristmill.execute._sample import sample_reader
from gristmill.execute._stage import Stage, StepStage
from gristmill.plan import (
    BatchNode,
    FilterNode,
    FlatMapNode,
    MapNode,
    MapWithIndexNode,
    Node,
    RandomMapNode,
    Step,
    sample_of,
    steps_of,
)


def open_stages(plan: Node) -> Stage:
    """Give the top stage of a plan.

    The cut is below the first batch over a sparse parent: what goes into it is known only in order.
    """
    steps = steps_of(plan)
    streams = [isinstance(step, BatchNode) and not step.is_dense for step in steps]
    cut = streams.index(True) if True in streams else len(steps)
    base: Node = steps[cut - 1] if cut else sample_of(plan)
    read = _reader(plan, steps, cut)

    def read_timed(positions: range) -> Outcome:
        start = time.perf_counter()
        outcome = read(positions).then(_as_rows)
        return Outcome(outcome.block, outcome.error, time.perf_counter() - start)

    stage: Stage = FeedStage(
        InlineExecutor(read_timed),
        length=base.length(),
        records_per_position=base.records_per_position,
    )
    for number, step in enumerate(steps[cut:], start=cut):
        if isinstance(step, BatchNode):
            stage = BatchStage(step, stage)
        else:
            stage = StepStage(_step_runner(step, steps[number + 1 :]), stage)
    return stage


def _as_rows(block: Block) -> Outcome:
    """Make the elements here, where it is timed and may be in parallel, not when they are used."""
    return Outcome(block.with_rows(block.rows()))


def num_flat_maps(plan: Node) -> int:
    """Count the flat maps of a plan: a cursor has a number for each."""
    return sum(isinstance(step, FlatMapNode) for step in steps_of(plan))


def _reader(plan: Node, steps: Sequence[Step | BatchNode], cut: int) -> Callable[[range], Outcome]:
    read = sample_reader(sample_of(plan), num_flat_maps=num_flat_maps(plan))
    for number, step in enumerate(steps[:cut]):
        if isinstance(step, BatchNode):
            read = batch_reader(step, read)
        else:
            read = _then(read, _step_runner(step, steps[number + 1 :]))
    return read


def _then(
    read: Callable[[range], Outcome], run: Callable[[Block], Outcome]
) -> Callable[[range], Outcome]:
    return lambda positions: read(positions).then(run)


def _step_runner(step: Step, later: Sequence[Step | BatchNode]) -> Callable[[Block], Outcome]:
    match step:
        case MapNode():
            return map_step(step)
        case MapWithIndexNode():
            return map_with_index_step(step)
        case RandomMapNode():
            goes_on = any(isinstance(other, RandomMapNode) for other in later)
            return random_map_step(step, goes_on=goes_on)
        case FilterNode():
            return filter_step(step)
        case FlatMapNode():
            return flat_map_step(step, level=num_flat_maps(step))
        case _:
            raise TypeError(f"{type(step).__name__} is not a step that works on one element")
