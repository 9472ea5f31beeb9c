"""Say in words what a plan gives: what a state of it belongs to.

Not how it is run: threads, workers and buffers change nothing in the stream. Nor which shard it is
of, for another one may go on with what is left.
"""

from typing import Any

from gristmill._data.sampling.samplers import IndexSampler, SequentialSampler
from gristmill._plan.nodes.base import Node, parents_of
from gristmill._plan.nodes.combine_streams import MixStreamNode
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.rearrange import RearrangeNode
from gristmill._plan.nodes.sample import SampleNode
from gristmill._plan.nodes.source import SourceNode
from gristmill._plan.nodes.stream import HintNode
from gristmill._plan.sharding import shard_slice


def describe(plan: Node) -> dict[str, Any]:
    """Give the source of a plan, its order and its steps; of several sources, each by name.

    >>> from gristmill import MapDataset
    >>> describe(MapDataset.range(9).shuffle(seed=1).map(str).to_iter_dataset()._plan_node)
    ... # doctest: +NORMALIZE_WHITESPACE
    {'source': 'RangeDataSource(start=0, stop=9, step=1)',
     'order': ['Shuffle(seed=1)'],
     'steps': ['Shuffle(seed=1)', 'Map str']}
    """
    order: list[str] = []
    steps: list[str] = []
    cut: Node | None = None
    node: Any = plan
    while not isinstance(node, SourceNode) and len(parents_of(node)) == 1 and not _is_named(node):
        if isinstance(node, AccessNode):
            cut = shard_slice(node.parent)
        told = _told(node, is_shard=node is cut)
        if told is not None:
            steps.append(told)
            if isinstance(node, SampleNode | RearrangeNode):
                order.append(told)
        (node,) = parents_of(node)
    source: Any = node.label
    several = parents_of(node)
    if several:
        steps.append(_told(node, is_shard=False) or "")
        source = {_name(node, number): describe(below) for number, below in enumerate(several)}
    return {"source": source, "order": order[::-1], "steps": steps[::-1]}


def _told(node: Any, *, is_shard: bool) -> str | None:
    if isinstance(node, HintNode) or (isinstance(node, AccessNode) and not node.keeps_none):
        return None
    if is_shard:
        return "Shard"
    if isinstance(node, AccessNode):
        return "ToIter(allow_nones=True)"
    if _is_named(node):
        return "Mix"  # what is mixed, and how much of it, may change
    if isinstance(node, SampleNode):
        return _sampler(node)
    seed = getattr(node, "seed", None)
    told = node.label
    return told if seed is None or "seed=" in told else f"{told} (seed={seed})"


def _is_named(node: Any) -> bool:
    """Tell a mix of named datasets, of which there may be more another time."""
    return isinstance(node, MixStreamNode) and node.names is not None


def _sampler(node: SampleNode) -> str:
    """Give the sampler without the shard."""
    sampler = node.sampler
    if isinstance(sampler, IndexSampler | SequentialSampler):
        told = (
            repr(sampler)
            .replace(f"shard_options={sampler.shard_options!r}, ", "")
            .replace(f", shard_options={sampler.shard_options!r}", "")
        )
        told = told if "seed=" in told else f"{told} (seed={sampler.seed})"
    else:
        told = node.label
    return f"{told}, remainder of shards dropped" if node.shard.drop_remainder else told


def _name(node: Any, number: int) -> str:
    names = getattr(node, "names", None)
    return str(number) if names is None else names[number]
