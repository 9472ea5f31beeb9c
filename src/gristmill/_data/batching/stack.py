"""Stacking of elements into one batch, leaf by leaf along a new first axis.

The work is done per leaf, never per element: a list of dicts becomes a dict of lists, and each list
one array.
"""

from collections.abc import Hashable, Mapping, Sequence
from operator import itemgetter
from typing import cast

import numpy as np

from gristmill._base.columns import Allocate
from gristmill._base.key_order import with_sorted_keys
from gristmill._base.tree import builder, children, jax_structure
from gristmill._data.batching.leaves import LEAF_TYPES, stack_leaves
from gristmill.errors import BatchError
from gristmill.types import Element, Tree


def stack(rows: Sequence[Element], allocate: Allocate = np.empty) -> Tree:
    """Return a tree like each of `rows`, with its leaves stacked into new arrays.

    The keys of dicts are sorted, as in Grain. `allocate(shape, dtype)` provides the memory of large
    arrays.

    >>> stack([{"x": 1, "y": "a"}, {"x": 2, "y": "bc"}])
    {'x': array([1, 2]), 'y': array(['a', 'bc'], dtype='<U2')}
    """
    if rows[0] is None:
        raise _none(0)
    try:
        return with_sorted_keys(_stack(rows, "batch", allocate))
    except BatchError:
        for row, element in enumerate(rows):
            if element is None:
                raise _none(row) from None
        raise


def _stack(nodes: Sequence[Tree], path: str, allocate: Allocate) -> Tree:
    first = nodes[0]
    inner = None if type(first) in LEAF_TYPES else children(first)
    if inner is None:
        return stack_leaves(nodes, path, allocate)
    if len(set(map(type, nodes))) > 1:
        raise _mismatch(nodes, path, [_kind(node) for node in nodes])
    steps = inner[0]
    columns = _transpose(nodes, steps, path)
    return builder(first)(
        [_stack(column, path + step, allocate) for step, column in zip(steps, columns, strict=True)]
    )


def _transpose(nodes: Sequence[Tree], steps: list[str], path: str) -> list[Sequence[Tree]]:
    """Turn many nodes with the same children into a list of each child, children in order."""
    first = nodes[0]
    if first is None:
        return []
    if isinstance(first, Mapping):
        keys = list(cast("Mapping[Hashable, Tree]", first))
        # A defaultdict would create missing keys.
        creates_keys = type(cast(object, first)) is not dict
        try:
            missing = creates_keys and any(node.keys() != set(keys) for node in nodes)
            if not missing and len(set(map(len, nodes))) == 1:
                return [list(map(itemgetter(key), nodes)) for key in keys]
        except KeyError:
            pass
        raise _mismatch(nodes, path, [f"keys {sorted(map(str, node))}" for node in nodes])
    if isinstance(first, list | tuple):
        try:
            return list(zip(*nodes, strict=True)) if steps else []
        except ValueError:
            descriptions = [f"a {_kind(node)} of {len(node)}" for node in nodes]
            raise _mismatch(nodes, path, descriptions) from None
    structures = [jax_structure(node) for node in nodes]
    if len(set(structures)) > 1:
        raise _mismatch(nodes, path, list(map(str, structures)))
    values = [(children(node) or ([], []))[1] for node in nodes]
    return [list(column) for column in zip(*values, strict=True)]


def _none(row: int) -> BatchError:
    return BatchError(
        "batch: a record is None. Filter such records out before batching, or replace them.",
        row=row,
    )


def _mismatch(nodes: Sequence[Tree], path: str, descriptions: list[str]) -> BatchError:
    row = next(row for row, what in enumerate(descriptions) if what != descriptions[0])
    return BatchError(
        f"{path}: {descriptions[0]} and {descriptions[row]}. All elements of a batch need the "
        "same structure; convert lists of varying length to arrays and pad them.",
        row=row,
    )


def _kind(node: Tree) -> str:
    return "None" if node is None else type(node).__name__
