"""Builders of the nodes that choose records: splits, folds, and draws by weights."""

import weakref
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from gristmill._api.dataset.base import Dataset, resolve_seed
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site, warn_user_once
from gristmill._base.checks import as_seed
from gristmill._data.sampling.labels import as_classes, as_labels
from gristmill._data.sampling.splits import SplitPart, fold_parts, split_parts
from gristmill._data.sampling.weights import WeightedDraws, balanced_weights
from gristmill._plan.epochs import check_can_split, find_shuffle
from gristmill._plan.nodes.base import ENDLESS, Node
from gristmill._plan.nodes.rearrange import SliceNode, SplitNode, WeightedNode
from gristmill._plan.nodes.sampled import SourceNode
from gristmill.errors import PlanError
from gristmill.types import Indices


def split_nodes(
    dataset: Dataset, fractions: object, seed: int | None, stratify: object
) -> list[SplitNode]:
    """Return the node of each part of a split."""
    parent = plan_of(dataset)
    check_can_split(parent, "split")
    key = as_seed(resolve_seed(dataset, seed, method="split"))
    classes = _classes_of(dataset, parent, stratify)
    parts = split_parts(_length_of(parent, "split"), fractions, seed=key, classes=classes)
    return _part_nodes(parent, parts)


def fold_nodes(
    dataset: Dataset, k: int, i: int, seed: int | None, stratify: object
) -> list[SplitNode]:
    """Return the node of all folds but one, and the node of that fold."""
    parent = plan_of(dataset)
    check_can_split(parent, "k_fold")
    key = as_seed(resolve_seed(dataset, seed, method="k_fold"))
    classes = _classes_of(dataset, parent, stratify)
    parts = fold_parts(_length_of(parent, "k_fold"), k, i, seed=key, classes=classes)
    return _part_nodes(parent, parts)


def weighted_node(
    dataset: Dataset,
    weights: object,
    *,
    balance: object,
    num_samples: int | None,
    replacement: bool,
    seed: int | None,
) -> WeightedNode:
    """Return the node that draws elements in proportion to weights."""
    parent = plan_of(dataset)
    if (weights is None) == (balance is None):
        raise PlanError("`sample` needs either `weights` or `balance`. Pass one of the two.")
    _length_of(parent, "sample")
    key = resolve_seed(dataset, seed, method="sample")
    if balance is None:
        numbers = as_labels("weights", weights, _records_of(dataset, parent))
    else:
        numbers = balanced_weights(as_labels("balance", balance, _records_of(dataset, parent)))
    draws = WeightedDraws.of(numbers, num_samples=num_samples, replacement=replacement, seed=key)
    return WeightedNode(site=call_site(), parent=parent, draws=draws)


_Slices: TypeAlias = list[tuple["weakref.ref[Node]", range]]

_slices: dict[tuple[int, str, int], _Slices] = {}
"""Slices of shuffled datasets, by the source, the shuffle and the number of elements. Each holds a
reference to the node of its source, without which the number of the source means nothing."""


def warn_of_second_slice(node: SliceNode) -> None:
    """Warn if disjoint slices are made of one shuffled source: they overlap in later epochs.

    The steps between the source and the slice may differ, and so may the datasets.
    """
    shuffle = None if node.is_shard else find_shuffle(node.parent)
    taken = range(node.start, node.stop, node.step)
    if shuffle is None or not taken:
        return
    bottom = shuffle
    while bottom.parents:
        bottom = bottom.parents[0]
    source = bottom.source if isinstance(bottom, SourceNode) else bottom
    key = id(source), shuffle.label, node.parent.length()
    earlier = [one for one in _slices.get(key, ()) if one[0]() is not None]
    if any(_are_disjoint(taken, other) for _, other in earlier):
        _warn_of_leak()
    _slices[key] = [*earlier, (weakref.ref(bottom), taken)]


def _warn_of_leak() -> None:
    warn_user_once(
        "slices of a shuffled dataset",
        "A slice of a shuffled dataset has other elements in each epoch: from the second epoch on, "
        "a training slice contains elements of the test slice. Use `split`, whose parts are the "
        "same in every epoch, and shuffle after it:\n"
        "    ds = ds.shuffle(seed=0); train, test = ds[:800], ds[800:]   # leaks\n"
        "    train, test = ds.split([0.8, 0.2], seed=0); train = train.shuffle(seed=0)",
    )


def _are_disjoint(one: range, other: range) -> bool:
    if max(one) < min(other) or max(other) < min(one):
        return True
    return not np.intersect1d(one, other).size if len(one) + len(other) < 10_000_000 else False


def _length_of(parent: Node, method: str) -> int:
    length = parent.length()
    if not length:
        raise PlanError(f"`{method}` needs at least one element, but {parent.label} is empty.")
    if length >= ENDLESS:
        raise PlanError(f"`{method}` needs a finite dataset. Call it before `repeat`.")
    return length


def _part_nodes(parent: Node, parts: Sequence[SplitPart]) -> list[SplitNode]:
    site = call_site()
    return [SplitNode(site=site, parent=parent, part=part) for part in parts]


def _records_of(dataset: Dataset, parent: Node) -> Any:
    """Return what to read labels from: the source itself, which may have columns, if it is one."""
    return parent.source if isinstance(parent, SourceNode) else cast(Any, dataset)


def _classes_of(dataset: Dataset, parent: Node, stratify: object) -> Indices | None:
    if stratify is None:
        return None
    return as_classes(as_labels("stratify", stratify, _records_of(dataset, parent)))[0]
