"""Put the steps that run in order on top of what an executor computes."""

from gristmill.execute._batch import BatchStage
from gristmill.execute._executor import Executor
from gristmill.execute._feed import FeedStage
from gristmill.execute._reader import Cut, step_runner
from gristmill.execute._stage import Stage, StepStage
from gristmill.observe import Counters
from gristmill.plan import BatchNode


def stack_stages(
    cut: Cut,
    executor: Executor,
    counters: Counters,
    *,
    length: int | None = None,
    num_steps: int | None = None,
    needs_thread: bool = False,
) -> Stage:
    """Give the stage of the first `num_steps` steps, over the first `length` positions.

    By default that is all of them.
    """
    stage: Stage = FeedStage(
        executor,
        length=_num_needed(cut) if length is None else length,
        records_per_position=cut.base.records_per_position,
        counters=counters,
        needs_thread=needs_thread,
    )
    for number, step in enumerate(cut.steps[cut.num_read : num_steps], start=cut.num_read + 1):
        clock = counters.steps[number]
        if isinstance(step, BatchNode):
            stage = BatchStage(step, stage, clock)
        else:
            stage = StepStage(step_runner(step, cut.steps[number:]), stage, clock)
    return stage


def _num_needed(cut: Cut) -> int:
    """Count the positions that are read: records of a batch that is dropped are not."""
    if cut.skips_errors:
        return cut.base.length()
    nodes = [cut.base, *(step for step in cut.steps[cut.num_read :] if step.is_dense)]
    needed = min(node.length() * node.records_per_position for node in nodes)
    return min(cut.base.length(), -(-needed // cut.base.records_per_position))
