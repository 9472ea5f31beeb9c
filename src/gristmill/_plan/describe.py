"""Describe the stream of a plan, so that a state can name the pipeline it belongs to.

The description does not contain how a plan runs, because threads, workers and buffers do not change
the stream. Nor does it contain the shard, because another shard may continue with what remains:
unless its streams are several shards, or one of them reads everything, which no other can continue.
"""

from typing import Any

from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.dataset import AccessNode, shard_slice
from gristmill._plan.sharding import has_one_shard


def describe(plan: Node) -> dict[str, Any]:
    """Return the source of a plan, its order and its steps; if it has several sources, of each.

    >>> from gristmill import MapDataset
    >>> describe(MapDataset.range(9).shuffle(seed=1).map(str).to_iter_dataset()._plan_node)
    ... # doctest: +NORMALIZE_WHITESPACE
    {'source': 'RangeDataSource(start=0, stop=9, step=1)',
     'order': ['Shuffle(seed=1)'],
     'steps': ['Shuffle(seed=1)', 'Map str']}
    """
    return _describe(plan, hides_shard=has_one_shard(plan))


def _describe(plan: Node, *, hides_shard: bool) -> dict[str, Any]:
    order: list[str] = []
    steps: list[str] = []
    shard: Node | None = None
    node = plan
    while len(node.parents) == 1 and node.parent_names is None:
        if hides_shard and isinstance(node, AccessNode):
            shard = shard_slice(node.parent)
        step = "Shard" if node is shard else node.description
        if step is not None:
            steps.append(step)
            if node.is_order:
                order.append(step)
        (node,) = node.parents
    source: str | dict[str, Any] = node.label
    if node.parents:
        steps.append(node.description or "")
        names = node.parent_names or map(str, range(len(node.parents)))
        inputs = [_describe(parent, hides_shard=hides_shard) for parent in node.parents]
        source = dict(zip(names, inputs, strict=True))
    return {"source": source, "order": order[::-1], "steps": steps[::-1]}
