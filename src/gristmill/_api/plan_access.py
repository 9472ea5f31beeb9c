"""The plan behind a loader, a dataset or an iterator, which is not part of their public API."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Protocol, runtime_checkable

from gristmill._api.grain_datasets import grain_node, is_grain_dataset
from gristmill._base.call_site import call_site
from gristmill._engine.run import Run
from gristmill._engine.settings import Settings
from gristmill._plan.nodes.base import Node, kind_of
from gristmill._plan.nodes.sampled import SourceNode
from gristmill.errors import ProvenanceError


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


def pipeline_of(pipeline: Any) -> tuple[Node, Settings, Mapping[str, Any]]:
    """Return the plan of a loader or dataset, how it runs, and the description of its states.

    Raises:
        ProvenanceError: It is a dataset with an iterator of the user's own.
    """
    with closing(iter(pipeline)) as iterator:
        run = getattr(iterator, "_run", None)
    if not isinstance(run, Run):
        raise ProvenanceError(
            f"{type(iterator).__name__} does not keep track of steps and records. Pass the dataset "
            "below it."
        )
    return run.pipeline


def source_node(source: Any) -> SourceNode:
    """Return the node that reads `source`.

    A dataset that is only a source, such as `MapDataset.source(files)`, stands for that source, so
    that whole blocks and columns are read from it.
    """
    plan = plan_of(source) if isinstance(source, HasPlan) else None
    inner: Any = plan.source if isinstance(plan, SourceNode) else source
    return SourceNode(site=call_site(), source=inner)


def require_length(owner: object, length: int | None) -> int:
    """Return the length of a loader or dataset, for its `__len__`.

    Raises:
        TypeError: The length is `None`. It is the error of objects without a length, so that
            `list`, progress bars and others do without it.
    """
    if length is None:
        raise TypeError(
            f"The number of elements of this `{kind_of(owner)}` is not known before they are "
            "computed, or they never end."
        )
    return length
