"""The epochs of a plan: the plan of one of them, and the steps that differ between them."""

from dataclasses import replace

from gristmill._plan.nodes.base import ENDLESS, Node, RecordsNode
from gristmill._plan.nodes.combine import MixNode, SelectNode
from gristmill._plan.nodes.rearrange import (
    RepeatNode,
    ShuffleNode,
    WeightedNode,
    WindowShuffleNode,
)
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.sharding import replace_leaves
from gristmill.errors import PlanError


def with_epoch(plan: Node, epoch: int) -> Node:
    """Return the plan of a loader for one epoch."""

    def change(leaf: RecordsNode) -> RecordsNode:
        return replace(leaf, epoch=epoch) if isinstance(leaf, SampleNode) else leaf

    return replace_leaves(plan, change)


def find_shuffle(dataset: Node) -> Node | None:
    """Return a step that puts other elements at an index in each epoch, if there is one."""
    if isinstance(dataset, ShuffleNode | WindowShuffleNode | WeightedNode):
        return dataset
    if isinstance(dataset, RepeatNode) and not dataset.reseeds:
        return None
    return next(filter(None, map(find_shuffle, dataset.parents)), None)


def check_can_split(dataset: Node, method: str) -> None:
    """Raise if parts of a dataset could have elements in common.

    Args:
        dataset: The dataset to split.
        method: The method that splits it, for the error message.
    """
    shuffle = find_shuffle(dataset)
    if shuffle is not None:
        name = "sample" if isinstance(shuffle, WeightedNode) else "shuffle"
        raise PlanError(
            f"`{method}` cannot follow {shuffle.label}, added at {shuffle.site}, which puts other "
            f"elements at an index in each epoch. Call `{method}` before `{name}`:\n"
            f"    ds.{name}(...).{method}(...)   # the parts would share elements\n"
            f"    train, test = ds.{method}(...); train = train.{name}(...)"
        )
    mix = _find(dataset, MixNode | SelectNode)
    if mix is not None:
        raise PlanError(
            f"`{method}` cannot follow {mix.label}, added at {mix.site}, whose later epochs may "
            f"have other elements than the first. Call `{method}` on each dataset, and mix the "
            "parts."
        )
    repeat = _find(dataset, RepeatNode)
    if repeat is not None or dataset.length() >= ENDLESS:
        raise PlanError(
            f"`{method}` cannot follow `repeat`, because copies of an element could be in several "
            f"parts. Call `{method}` first, and repeat the parts."
        )


def _find(dataset: Node, kind: object) -> Node | None:
    if isinstance(dataset, kind):  # pyright: ignore[reportArgumentType] - a union of classes
        return dataset
    return next((found for parent in dataset.parents if (found := _find(parent, kind))), None)
