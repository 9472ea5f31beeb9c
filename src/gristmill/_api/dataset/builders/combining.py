"""Builders of the plan nodes that combine several datasets into one.

Each checks its arguments and records the user's line that called the method.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from gristmill._api.dataset.base import Dataset
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._plan.mix_schedule import MixWeights, as_schedule
from gristmill._plan.mixing import as_proportions, mixed_order
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.combine import ConcatenateNode, MixNode, SelectNode
from gristmill._plan.nodes.combine_streams import MixStreamNode
from gristmill._plan.scheduled_mixing import ScheduledMix
from gristmill.types import RandomAccessDataSource


def mix_node(datasets: Sequence[Dataset], weights: MixWeights | None) -> MixNode:
    """Return the node that alternates between datasets in proportion to `weights`."""
    count, schedule = len(datasets), as_schedule(weights)
    constant = None if schedule is not None else cast("Sequence[float] | None", weights)
    return MixNode(
        site=call_site(),
        inputs=tuple(map(plan_of, datasets)),
        proportions=as_proportions(constant, count),
        schedule=None if schedule is None else ScheduledMix(schedule, None, count),
    )


def select_node(
    datasets: Sequence[Dataset], selection_map: RandomAccessDataSource[tuple[int, int]]
) -> SelectNode:
    """Return the node that takes each element from where `selection_map` points to."""
    nodes = tuple(map(plan_of, datasets))
    return SelectNode(site=call_site(), inputs=nodes, selection=selection_map)


def concatenate_node(datasets: Sequence[Dataset]) -> ConcatenateNode:
    """Return the node that concatenates datasets."""
    return ConcatenateNode(site=call_site(), inputs=tuple(map(plan_of, datasets)))


def mix_stream_node(
    datasets: Any, weights: MixWeights | None, as_node: Callable[[Any], Node]
) -> tuple[MixStreamNode, list[Any]]:
    """Return the node that alternates between streams, and the streams in its order.

    Args:
        datasets: The streams: a list, or a mapping of their names.
        weights: The weights, by name if the streams have names, or a schedule of them.
        as_node: Returns the node of a stream.
    """
    schedule = as_schedule(weights)
    constant = None if schedule is not None else cast("Sequence[float] | None", weights)
    parents, names, proportions = mixed_order(datasets, constant)
    keys = sorted(datasets) if names is not None else None
    node = MixStreamNode(
        site=call_site(),
        inputs=tuple(map(as_node, parents)),
        proportions=proportions,
        names=names,
        schedule=None if schedule is None else ScheduledMix(schedule, keys, len(parents)),
    )
    return node, parents
