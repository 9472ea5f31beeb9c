"""Datasets of Grain that are passed to ours, in programs that are converted step by step.

Grain is not imported here: a program that passes such an object has imported it.
"""

from typing import Any, final

from gristmill._base.call_site import call_site
from gristmill._base.grain.classes import is_from_grain
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.dataset import CustomNode
from gristmill._plan.nodes.stream import CustomStreamNode


@final
class GrainSource:
    """The elements of one epoch of a `MapDataset` of Grain, as a source. Absent ones are `None`."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[index % len(self._dataset)]


def is_grain_dataset(value: object) -> bool:
    """Return whether an object is a `MapDataset` or an `IterDataset` of Grain."""
    return is_from_grain(value, "MapDataset") or is_from_grain(value, "IterDataset")


def grain_node(dataset: Any) -> Node:
    """Return the node that reads a dataset of Grain by its own methods, with its own states."""
    name = f"grain.{type(dataset).__name__}"
    if is_from_grain(dataset, "MapDataset"):
        return CustomNode(site=call_site(), dataset=dataset, name=name)
    return CustomStreamNode(site=call_site(), dataset=dataset, name=name)


def grain_source_node(dataset: Any) -> Node:
    """Return the node of a `MapDataset` of Grain as a source: later epochs are like the first."""
    name = f"grain.{type(dataset).__name__}"
    return CustomNode(site=call_site(), dataset=GrainSource(dataset), name=name)
