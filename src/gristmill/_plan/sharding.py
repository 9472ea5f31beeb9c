"""Find where a plan is cut into shards, and give it for another one.

Of a loader that is told by its shard options. Of a dataset it is a slice that takes every n-th
element of all, `ds[i::n]`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gristmill._data.sampling.samplers import IndexSampler
from gristmill._plan.nodes.base import Node, parents_of
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.rearrange import SliceNode
from gristmill._plan.nodes.sample import SampleNode
from gristmill.errors import PlanError
from gristmill.options import ShardOptions


def leaves_of(plan: Node) -> list[SampleNode | AccessNode]:
    """Give where the streams of a plan begin."""
    if isinstance(plan, SampleNode | AccessNode):
        return [plan]
    return [leaf for parent in parents_of(plan) for leaf in leaves_of(parent)]


def shard_of(plan: Node) -> ShardOptions:
    """Give the shard that all of a plan is of; where its parts are not of one, all is one."""
    shards = {_shard_of_leaf(leaf) for leaf in leaves_of(plan)}
    (index, count) = shards.pop() if len(shards) == 1 else (0, 1)
    return ShardOptions(index, count)


def with_shard(plan: Node, shard: ShardOptions, *, is_contiguous: bool) -> Node:
    """Give the plan of another shard."""
    if isinstance(plan, SampleNode):
        return _sample_of_shard(plan, shard, is_contiguous=is_contiguous)
    if isinstance(plan, AccessNode):
        return replace(
            plan,
            parent=replace_below(
                plan.parent,
                shard_slice(plan.parent),
                lambda cut: replace(cut, start=shard.shard_index, step=shard.shard_count),
            ),
        )
    return with_parents(
        plan,
        [with_shard(parent, shard, is_contiguous=is_contiguous) for parent in parents_of(plan)],
    )


def has_contiguous_shards(plan: Node) -> bool:
    """Tell whether a shard is a piece of the records, which it shuffles by itself."""
    return any(
        isinstance(leaf, SampleNode)
        and isinstance(leaf.sampler, IndexSampler)
        and leaf.sampler.shard_options.shard_count > 1
        for leaf in leaves_of(plan)
    )


def shard_slice(dataset: Node) -> SliceNode | None:
    """Give the slice that makes a dataset one of several shards, if there is one.

    >>> from gristmill import MapDataset
    >>> shard_slice(MapDataset.range(10)[1::4].map(str)._plan_node).step
    4
    """
    node: Node | None = dataset
    while node is not None:
        if isinstance(node, SliceNode) and _is_shard(node):
            return node
        node = getattr(node, "parent", None)
    return None


def replace_below(node: Any, below: Node | None, change: Callable[[Any], Node]) -> Node:
    """Give a chain of nodes with another one in it."""
    if below is None or node is below:
        return change(node)
    return replace(node, parent=replace_below(node.parent, below, change))


def with_parents(node: Any, parents: list[Node]) -> Node:
    """Give a node over others."""
    if not parents:
        return node
    if hasattr(node, "parents"):
        return replace(node, parents=tuple(parents))
    return replace(node, parent=parents[0])


def _shard_of_leaf(leaf: SampleNode | AccessNode) -> tuple[int, int]:
    if isinstance(leaf, SampleNode):
        return leaf.shard.shard_index, leaf.shard.shard_count
    cut = shard_slice(leaf.parent)
    return (0, 1) if cut is None else (cut.start, cut.step)


def _is_shard(node: SliceNode) -> bool:
    return 0 <= node.start < node.step and node.stop == node.parent.length()


def _sample_of_shard(plan: SampleNode, shard: ShardOptions, *, is_contiguous: bool) -> SampleNode:
    shard = replace(shard, drop_remainder=plan.shard.drop_remainder)
    sampler: Any = plan.sampler
    if isinstance(sampler, IndexSampler):
        own = shard if is_contiguous else ShardOptions(0, 1)
        sampler = sampler.with_shard(own)
    return replace(plan, sampler=sampler, shard=shard)


def cut_into_shards(plan: Node, shard: ShardOptions, *, site: str) -> Node:
    """Give the plan of one shard of a plan that is of all."""
    if not isinstance(plan, AccessNode):
        parents = [cut_into_shards(parent, shard, site=site) for parent in parents_of(plan)]
        return with_parents(plan, parents)
    if shard_slice(plan.parent) is not None:
        raise PlanError(
            f"{plan.parent.label} is a shard already. Pass the whole of it, to be cut here."
        )
    start, step = shard.shard_index, shard.shard_count
    whole = plan.parent
    cut = SliceNode(site=site, parent=whole, start=start, stop=whole.length(), step=step)
    return replace(plan, parent=cut)
