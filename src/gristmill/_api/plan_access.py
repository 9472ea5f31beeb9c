"""The plan behind a loader, a dataset or an iterator, which is not part of their public API."""

from typing import Any, Protocol, runtime_checkable

from gristmill._api.grain_datasets import grain_node, is_grain_dataset
from gristmill._base.call_site import call_site
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.sampled import SourceNode


@runtime_checkable
class HasPlan(Protocol):
    """A loader, a dataset or an iterator of gristmill.

    The attribute is private because users subclass datasets: a public name could collide with
    theirs.
    """

    @property
    def _plan_node(self) -> Node: ...


def plan_of(planned: HasPlan) -> Node:
    """Return the top node of the plan of a loader, a dataset or an iterator.

    A dataset of Grain, which has no plan, is read by its own methods.
    """
    private: Any = planned
    if is_grain_dataset(planned):
        return grain_node(private)
    return private._plan_node  # noqa: SLF001 - the only reader


def source_node(source: Any) -> SourceNode:
    """Return the node that reads `source`.

    A dataset that is only a source, such as `MapDataset.source(files)`, stands for that source, so
    that whole blocks and columns are read from it.
    """
    plan = plan_of(source) if isinstance(source, HasPlan) else None
    inner: Any = plan.source if isinstance(plan, SourceNode) else source
    return SourceNode(site=call_site(), source=inner)
