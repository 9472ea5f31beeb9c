"""Run a plan in the calling thread: nothing in the background, and no worker processes."""

from dataclasses import replace

from gristmill._engine.settings import Settings
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.combine_streams import InterleaveNode
from gristmill._plan.nodes.hints import ReadNode, WorkersNode, all_nodes
from gristmill.options import MultiprocessingOptions, ReadOptions


def inline_settings(settings: Settings) -> Settings:
    """Return settings without threads and processes."""
    return replace(
        settings,
        read=ReadOptions(num_threads=0),
        multiprocessing=MultiprocessingOptions(),
        is_tuned=False,
    )


def inline_plan(plan: Node) -> Node:
    """Return the same stream without the nodes that ask for threads or processes.

    >>> from gristmill import MapDataset
    >>> inline_plan(MapDataset.range(3).to_iter_dataset()._plan_node).label
    'ToIter(RangeDataSource(start=0, stop=3, step=1))'
    """
    if isinstance(plan, ReadNode | WorkersNode):
        return inline_plan(plan.parent)
    if isinstance(plan, InterleaveNode):
        return _inline_interleave(plan)
    if not plan.parents:
        return plan
    return plan.with_parents([inline_plan(parent) for parent in plan.parents])


def asks_for_workers(plan: Node, settings: Settings) -> bool:
    """Return whether the user wants worker processes, and not only if they turn out to be faster.

    >>> from gristmill import MapDataset, MultiprocessingOptions
    >>> ds = MapDataset.range(3).to_iter_dataset().mp_prefetch(MultiprocessingOptions(1))
    >>> iterator = iter(ds)
    >>> asks_for_workers(ds._plan_node, iterator._settings)
    True
    >>> iterator.close()
    """
    return any(options.num_workers for options in _worker_options(plan, settings))


def wants_profile(plan: Node, settings: Settings) -> bool:
    """Return whether the user wants to know what worker processes do."""
    return any(
        options.num_workers and options.enable_profiling
        for options in _worker_options(plan, settings)
    )


def _worker_options(plan: Node, settings: Settings) -> list[MultiprocessingOptions]:
    nodes = [node for node in all_nodes(plan) if isinstance(node, WorkersNode)]
    return [settings.multiprocessing, *(node.options for node in nodes)]


def _inline_interleave(plan: InterleaveNode) -> InterleaveNode:
    def node_at(number: int) -> Node | None:
        node = plan.node_at(number)
        return None if node is None else inline_plan(node)

    return replace(plan, node_at=node_at)
