"""Put the steps that run in order on top of what an executor computes."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import final

from gristmill._engine.access.batch import batch_ends, make_batches
from gristmill._engine.access.context import ReadContext
from gristmill._engine.access.cut import Cut
from gristmill._engine.access.reader import open_step
from gristmill._engine.blocks.block import (
    Block,
    BlockResult,
    SourceEndedError,
    concatenate,
    log_source_end,
)
from gristmill._engine.executors.base import Executor
from gristmill._engine.stages.base import (
    SegmentStage,
    Stage,
    StepStage,
    UpperStage,
    settle_below,
)
from gristmill._engine.stages.ranges import RangeStage
from gristmill._metrics.counters import Counters, StepClock
from gristmill._metrics.profiler import named
from gristmill._metrics.step_time import begin_step, end_step
from gristmill._plan.nodes.base import Step
from gristmill._plan.nodes.steps import BatchNode
from gristmill.types import Cursor


@final
class BatchStage(UpperStage, SegmentStage):
    """Stacks elements in their order, and keeps those of an incomplete batch for the next block."""

    def __init__(self, node: BatchNode, parent: Stage, clock: StepClock) -> None:
        super().__init__(parent)
        self._node = node
        self._make = named(node.label, make_batches)
        self._clock = clock
        self._pending: list[Block] = []

    def pull(self) -> BlockResult | None:
        result = self.parent.pull()
        if result is not None and len(result.block):
            self._pending.append(result.block)
        count = sum(map(len, self._pending))
        is_last = result is None and not self._node.drop_remainder
        num_ready = count if is_last else count - count % self._node.size
        if not num_ready:
            return result if result is None else result.with_block(Block.empty())
        begin = begin_step(None if result is None else result.reading)
        block = concatenate(self._pending)
        self._pending = [block[num_ready:]] if num_ready < count else []
        ready = (result or BlockResult(Block.empty())).with_block(block[:num_ready])
        concatenating, ready.reading = end_step(begin)
        ends = batch_ends(self._node.size, num_ready)
        batches = ready.then(lambda block: self._make(self._node, block, ends))
        self._clock.add(concatenating.plus(batches.step_times[-1]))
        return batches

    def settle(self, num_missing: int = 0) -> Cursor | None:
        count = sum(map(len, self._pending))
        num_batches = max(num_missing, 1) if count else num_missing
        return settle_below(
            self.parent, num_batches * self._node.size - count if num_batches else 0
        )

    def seek(self, cursor: Cursor) -> Cursor:
        self._pending = []
        return self.parent.seek(cursor)


def stack_stages(
    cut: Cut,
    executor: Executor,
    counters: Counters,
    first_step: int = 0,
    *,
    length: int | None = None,
    needs_thread: bool = False,
    on_source_end: Callable[[SourceEndedError], None] = log_source_end,
) -> Stage:
    """Return the stage of the steps over the first `length` positions; by default, over all.

    Its steps are counted from `first_step` on. The steps above those that `counters` lists are not
    part of the stage.
    """
    stage: Stage = RangeStage(
        executor,
        length=cut.base.length() if length is None else length,
        num_needed=_need(cut) if length is None else _all,
        records_per_position=cut.base.records_per_position,
        num_flat_maps=cut.num_flat_maps,
        counters=counters,
        first_step=first_step,
        num_sources=cut.plan.num_sources,
        reads_many=cut.plan.reads_many,
        needs_thread=needs_thread,
        on_source_end=on_source_end,
    )
    return stack_steps(
        stage,
        cut.steps[cut.num_read :],
        counters.steps[first_step + cut.num_measured :],
    )


def stack_steps(stage: Stage, steps: Sequence[Step], clocks: Sequence[StepClock]) -> Stage:
    """Return the stage of as many steps as there are clocks, on top of another stage."""
    for number, (step, clock) in enumerate(zip(steps, clocks, strict=False), start=1):
        if isinstance(step, BatchNode):
            stage = BatchStage(step, stage, clock)
        else:
            context = ReadContext(by_index=False, steps_above=steps[number:])
            stage = StepStage(open_step(step, context), stage, clock)
    return stage


def _need(cut: Cut) -> Callable[[int], int]:
    """Return how many of the remaining positions to read: not those of a batch that is dropped."""
    above = [] if cut.skips_errors else cut.steps[cut.num_read :]
    dense = [step for step in above if step.is_dense]
    records = [cut.base.records_per_position, *(step.records_per_position for step in dense)]
    sizes = [upper // lower for lower, upper in pairwise(records)]

    def num_needed(num_left: int) -> int:
        counts = [num_left]
        for step in dense:
            counts.append(step.max_outputs(counts[-1]))
        needed = counts.pop()
        for size, count in zip(reversed(sizes), reversed(counts), strict=True):
            needed = min(needed * size, count)
        return needed

    return num_needed


def _all(num_left: int) -> int:
    return num_left
