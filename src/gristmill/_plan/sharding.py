"""Find the shard that a plan reads, and make the plan of another shard.

The shard of a loader is one of its options. A dataset is a shard if it contains a slice of every
n-th element, `ds[i::n]`.
"""

from collections.abc import Callable

from gristmill._plan.nodes.base import Node, RecordsNode
from gristmill._plan.nodes.dataset import AccessNode
from gristmill.errors import PlanError
from gristmill.options import ShardOptions


def shard_of(plan: Node) -> ShardOptions:
    """Return the shard that a plan reads: all, if its streams are not the same shard."""
    shards = _shards_of(plan)
    index, count = shards.pop() if len(shards) == 1 else (0, 1)
    return ShardOptions(index, count)


def has_one_shard(plan: Node) -> bool:
    """Return whether all streams of a plan that are read by index are the same shard."""
    return len(_shards_of(plan)) <= 1


def _shards_of(plan: Node) -> set[tuple[int, int]]:
    return {leaf.own_shard for leaf in _leaves(plan)}


def reads_a_part(plan: Node) -> bool:
    """Return whether a plan reads a part of its records: a shard, or a slice by the user's code.

    Also true if it is not known, as for a user's own dataset or stream.
    """
    return plan.may_be_shard or any(map(reads_a_part, plan.parents))


def with_shard(plan: Node, shard: ShardOptions, *, is_contiguous: bool) -> Node:
    """Return the plan of another shard."""
    return replace_leaves(plan, lambda leaf: leaf.with_shard(shard, is_contiguous=is_contiguous))


def has_contiguous_shards(plan: Node) -> bool:
    """Return whether a shard is a range of the records, which it shuffles separately."""
    return any(leaf.has_contiguous_shards for leaf in _leaves(plan))


def cut_into_shards(plan: Node, shard: ShardOptions, *, site: str) -> Node:
    """Return the plan of one shard of a plan that reads all elements.

    Raises:
        PlanError: If there are several shards, and a step needs the stream as a whole.
    """
    if shard.shard_count > 1:
        _refuse_whole_streams(plan)
    return replace_leaves(
        plan, lambda leaf: leaf.cut(shard, site=site) if isinstance(leaf, AccessNode) else leaf
    )


def _refuse_whole_streams(plan: Node) -> None:
    if not isinstance(plan, RecordsNode):
        if plan.shard_problem is not None:
            raise PlanError(
                f"`{plan.label}`, added at {plan.site}, cannot be distributed over shards: "
                f"{plan.shard_problem}. Build the dataset without it, or slice the data in each "
                "process, as in `ds[shard::num_shards]`, and batch that."
            )
        for parent in plan.parents:
            _refuse_whole_streams(parent)


def _leaves(plan: Node) -> list[RecordsNode]:
    """Return the nodes at which the streams of a plan begin."""
    if isinstance(plan, RecordsNode):
        return [plan]
    return [leaf for parent in plan.parents for leaf in _leaves(parent)]


def replace_leaves(plan: Node, change: Callable[[RecordsNode], Node]) -> Node:
    """Return a plan with other nodes at which its streams begin."""
    if isinstance(plan, RecordsNode):
        return change(plan)
    return plan.with_parents([replace_leaves(parent, change) for parent in plan.parents])
