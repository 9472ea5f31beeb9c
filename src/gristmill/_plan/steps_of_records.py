"""Find the step at which an element of a sampled stream comes, and the steps of a record."""

from collections.abc import Iterator
from itertools import count

import numpy as np

from gristmill._data.sampling.epoch_samplers import EpochSampler
from gristmill._data.sampling.samplers import IndexSampler, SequentialSampler
from gristmill._plan.exclusion import check_record
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.nodes.stream import StatefulNode
from gristmill._plan.traverse import bottom_of, sample_below, sample_of, steps_of
from gristmill.errors import PlanError
from gristmill.types import Cursor


def takes_counting(plan: Node) -> bool:
    """Return whether the step at a position is known only by counting."""
    return _first_sparse(plan) is not None


def cursor_at_step(plan: Node, step: int) -> Cursor | None:
    """Return the cursor before an element, or `None` if it is not known without counting.

    Raises:
        IndexError: The stream ends before that element.
    """
    if _first_sparse(plan) is not None:
        return None
    if step >= plan.length():
        raise no_element_at(step, plan.length())
    return (step * plan.records_per_position,)


def position_of_shard(plan: Node, position: int, epoch: int) -> int:
    """Return how many records a shard has read when all shards are at a position of an epoch.

    Args:
        plan: The plan of the shard.
        position: The number of records of the epoch that all shards have read together.
        epoch: The number of the epoch.

    Raises:
        IndexError: The stream or the epoch is shorter.
        PlanError: The epochs of the sampler are not known.
    """
    sample = sample_of(plan)
    sampler = sample.sampler
    shards, shard = sample.shard.shard_count, sample.shard.shard_index
    before = 0
    if epoch:
        if not isinstance(sampler, IndexSampler | SequentialSampler | EpochSampler):
            raise PlanError(
                f"The epochs of {sample.label} are not known. Pass the position in the stream."
            )
        before = epoch * sampler.epoch_size
    if sample.has_contiguous_shards:  # an epoch is that of the shard
        number = before + max(0, -(-(position - shard) // shards))
    else:
        number = max(0, -(-(before + position - shard) // shards))
    if number > sample.length():
        raise IndexError(
            f"There is no position {position} in epoch {epoch}: shard {shard} of {shards} has "
            f"{sample.length()} records."
        )
    return number


def step_at_cursor(plan: Node, cursor: Cursor) -> int | None:
    """Return the number of elements before a cursor, or `None` if it takes counting to know.

    >>> from gristmill import load
    >>> step_at_cursor(load(range(10), batch_size=3)._plan_node, (6,))
    2
    """
    if _first_sparse(plan) is not None or not bottom_of(plan).is_dense:
        return None
    return -(-cursor[0] // plan.records_per_position)


def may_lack_elements(plan: Node) -> bool:
    """Return whether a record or a map that is `None` removes an element, as it does in a dataset.

    Only reading them shows it: `is_dense` does not know.
    """
    bottom = bottom_of(plan)
    return isinstance(bottom, AccessNode) and not bottom.keeps_none


def no_element_at(step: int, num_steps: int) -> IndexError:
    """Return the error for a step past the end of a stream of `num_steps` elements."""
    return IndexError(f"There is no element at step {step}: the stream has {num_steps} elements.")


def steps_of_record(plan: Node, record: int) -> Iterator[int] | None:
    """Return the steps at which a record comes, in order; endless if the epochs are.

    It is `None` if they are not known without counting, because a step drops or splits elements.

    Raises:
        IndexError: The source has no such record.
        PlanError: The order of the sampler is not known.
    """
    sample = sample_below(plan)
    check_record(sample.parent, record)
    if _first_sparse(plan) is not None:
        return None
    sampler = sample.sampler
    if not isinstance(sampler, IndexSampler | SequentialSampler | EpochSampler):
        raise PlanError(
            f"The order of {sample.label} is not known without reading all of it. Use "
            "`IndexSampler`, `SubsetSampler` or `WeightedSampler`."
        )
    return _steps(plan, sample, sampler, record)


def _steps(
    plan: Node,
    sample: SampleNode,
    sampler: IndexSampler | SequentialSampler | EpochSampler,
    record: int,
) -> Iterator[int]:
    shards, shard = sample.shard.shard_count, sample.shard.shard_index
    num_steps, num_positions, size = plan.length(), sample.length(), sampler.epoch_size
    per_step = plan.records_per_position
    # With shards in the sampler, an epoch is that of the shard; else the shards stride over it.
    stride = shards if sample.has_contiguous_shards else 1
    first_epoch = 0 if sample.epoch is None else sample.epoch
    epochs = count() if sample.epoch is None else [sample.epoch]
    last = -1  # a record that comes twice in a batch is at one step
    for epoch in epochs:
        before = (epoch - first_epoch) * size
        if not size or before * stride // shards >= num_positions:
            return
        for offset in np.sort(sampler.offsets_of(record, epoch)).tolist():
            position = before + offset
            if not sample.has_contiguous_shards:
                position, owner = divmod(position, shards)
                if owner != shard:
                    continue
            step = position // per_step
            if position < num_positions and last < step < num_steps:
                last = step
                yield step


def _first_sparse(plan: Node) -> Node | None:
    """Return the lowest node above which the number of elements is not known, if there is one."""
    bottom = bottom_of(plan)
    if isinstance(bottom, StatefulNode):
        return bottom
    return next((step for step in steps_of(plan) if not step.is_dense), None)
