"""Many elements into one, stacked leaf by leaf along a new first axis.

The work is by leaf, never by element: a list of dicts becomes a dict of lists, and each list one
array.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._tree import builder, children, jax_structure
from gristmill.batch._leaves import LEAF_TYPES, stack_leaves
from gristmill.errors import BatchError
from gristmill.types import Element, Tree


def stack(rows: Sequence[Element], allocate: Callable[..., NDArray[Any]] = np.empty) -> Tree:
    """Give one tree like each of `rows`, its leaves stacked into arrays of their own memory.

    Large ones are made in what `allocate(shape, dtype)` gives.

    >>> stack([{"x": 1, "y": "a"}, {"x": 2, "y": "bc"}])
    {'x': array([1, 2]), 'y': array(['a', 'bc'], dtype='<U2')}
    """
    if rows[0] is None:
        raise _none(0)
    try:
        return _stack(rows, "batch", allocate)
    except BatchError:
        for row, element in enumerate(rows):
            if element is None:
                raise _none(row) from None
        raise


def _stack(nodes: Sequence[Any], path: str, allocate: Callable[..., NDArray[Any]]) -> Tree:
    first = nodes[0]
    inner = None if type(first) in LEAF_TYPES else children(first)
    if inner is None:
        return stack_leaves(nodes, path, allocate)
    if len(set(map(type, nodes))) > 1:
        raise _odd_one_out(nodes, path, [_kind(node) for node in nodes])
    steps = inner[0]
    columns = _transpose(nodes, steps, path)
    return builder(first)(
        [_stack(column, path + step, allocate) for step, column in zip(steps, columns, strict=True)]
    )


def _transpose(nodes: Sequence[Any], steps: list[str], path: str) -> list[Sequence[Any]]:
    """Turn many nodes with the same children into a list of each child, children in order."""
    first = nodes[0]
    if first is None:
        return []
    if isinstance(first, Mapping):
        keys = list(cast("Mapping[Any, Any]", first))
        # A defaultdict would make up what it lacks.
        makes_up = type(cast(Any, first)) is not dict
        try:
            missing = makes_up and any(node.keys() != set(keys) for node in nodes)
            if not missing and len(set(map(len, nodes))) == 1:
                return [list(map(itemgetter(key), nodes)) for key in keys]
        except KeyError:
            pass
        raise _odd_one_out(nodes, path, [f"keys {sorted(map(str, node))}" for node in nodes])
    if isinstance(first, list | tuple):
        try:
            return list(zip(*nodes, strict=True)) if steps else []
        except ValueError:
            told = [f"a {_kind(node)} of {len(node)}" for node in nodes]
            raise _odd_one_out(nodes, path, told) from None
    structures = [jax_structure(node) for node in nodes]
    if len(set(structures)) > 1:
        raise _odd_one_out(nodes, path, list(map(str, structures)))
    values = [(children(node) or ([], []))[1] for node in nodes]
    return [list(column) for column in zip(*values, strict=True)]


def _none(row: int) -> BatchError:
    return BatchError(
        "batch: a record is None. Filter such records out before batching, or give them a value.",
        row=row,
    )


def _odd_one_out(nodes: Sequence[Any], path: str, told: list[str]) -> BatchError:
    row = next(row for row, what in enumerate(told) if what != told[0])
    return BatchError(
        f"{path}: {told[0]} and {told[row]}. Give all records one structure before batching; "
        "lists of varying length must become arrays and be padded.",
        row=row,
    )


def _kind(node: Any) -> str:
    return "None" if node is None else type(node).__name__
