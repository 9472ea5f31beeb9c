"""The epochs of a plan: the plan of one of them, and the steps that differ between them."""

from dataclasses import replace

from gristmill._plan.nodes.base import ENDLESS, EpochChange, Node, RecordsNode, steps_that_vary
from gristmill._plan.nodes.hints import all_nodes
from gristmill._plan.nodes.rearrange import RepeatNode, WeightedNode
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
    return _find_change(dataset, EpochChange.ORDER)


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
    mix = _find_change(dataset, EpochChange.MEMBERS)
    if mix is not None:
        raise PlanError(
            f"`{method}` cannot follow {mix.label}, added at {mix.site}, whose later epochs may "
            f"have other elements than the first. Call `{method}` on each dataset, and mix the "
            "parts."
        )
    repeats = any(isinstance(node, RepeatNode) for node in all_nodes(dataset))
    if repeats or dataset.length() >= ENDLESS:
        raise PlanError(
            f"`{method}` cannot follow `repeat`, because copies of an element could be in several "
            f"parts. Call `{method}` first, and repeat the parts."
        )


def _find_change(dataset: Node, change: EpochChange) -> Node | None:
    return next((node for node in steps_that_vary(dataset) if node.epoch_change is change), None)
