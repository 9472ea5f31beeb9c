"""Many elements into one, stacked leaf by leaf along a new first axis.

The work is by leaf, never by element: a list of dicts becomes a dict of lists, and each list one
array. Widths promote as in NumPy. What NumPy would blur without a word (numbers into text, large
integers into floats, the NUL bytes at the end of a text) is kept or refused.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._tree import builder, children, field_names
from gristmill.errors import BatchError
from gristmill.types import Element, SupportsArray, Tree

_SCALARS = (bool, int, float, complex, str, bytes, np.generic)
_LEAVES = {np.ndarray, *_SCALARS}


def stack(rows: Sequence[Element]) -> Tree:
    """Give one tree like each of `rows`, its leaves stacked into arrays of their own memory.

    >>> stack([{"x": 1, "y": "a"}, {"x": 2, "y": "bc"}])
    {'x': array([1, 2]), 'y': array(['a', 'bc'], dtype='<U2')}
    """
    kinds = set(map(type, rows))
    if type(None) in kinds:
        raise BatchError(
            "batch: a record is None. Filter such records out before batching, "
            "or give them a value.",
            row=next(row for row, element in enumerate(rows) if element is None),
        )
    return _stack(rows, kinds, "batch")


def _stack(nodes: Sequence[Any], kinds: set[type], path: str) -> Tree:
    first = nodes[0]
    inner = None if type(first) in _LEAVES else children(first)
    if inner is None:
        return _stack_leaves(nodes, kinds, path)
    steps, values = inner
    _check_same_kind(nodes, kinds, len(values), path)
    columns = _transpose(nodes, steps, path)
    return builder(first)(
        [
            _stack(column, set(map(type, column)), path + step)
            for step, column in zip(steps, columns, strict=True)
        ]
    )


def _transpose(nodes: Sequence[Any], steps: list[str], path: str) -> list[Sequence[Any]]:
    """Turn many nodes with the same children into a list of each child, children in order."""
    first = nodes[0]
    if first is None:
        return []
    if isinstance(first, Mapping):
        keys = list(cast("Mapping[Any, Any]", first))
        try:
            return [list(map(itemgetter(key), nodes)) for key in keys]
        except KeyError:
            row = next(row for row, node in enumerate(nodes) if node.keys() != first.keys())
            raise BatchError(
                f"{path}: keys {sorted(map(repr, keys))} and "
                f"{sorted(map(repr, nodes[row]))}. Give all records the same keys.",
                row=row,
            ) from None
    if isinstance(first, list | tuple):
        return list(zip(*nodes, strict=True)) if steps else []
    names = field_names(first) or ()
    return [list(map(attrgetter(name), nodes)) for name in names]


def _check_same_kind(nodes: Sequence[Any], kinds: set[type], size: int, path: str) -> None:
    first = nodes[0]
    if len(kinds) > 1:
        row = next(row for row, node in enumerate(nodes) if type(node) is not type(first))
        raise BatchError(
            f"{path}: {_kind(first)} and {_kind(nodes[row])}. Give all records one structure.",
            row=row,
        )
    if isinstance(first, Mapping | list | tuple) and len(set(map(len, nodes))) > 1:
        row = next(row for row, node in enumerate(nodes) if len(node) != size)
        raise BatchError(
            f"{path}: a {_kind(first)} of {size} and one of {len(nodes[row])} items. "
            "Give all records one structure; make lists of varying length arrays and pad them.",
            row=row,
        )


def _stack_leaves(leaves: Sequence[Any], kinds: set[type], path: str) -> NDArray[Any]:
    if not all(kind is np.ndarray or issubclass(kind, _SCALARS) for kind in kinds):
        leaves = [_as_array(leaf, path) for leaf in leaves]
        kinds = {np.ndarray}
    try:
        # For a list of arrays this is as fast as np.concatenate, checks the shapes, and promotes.
        stacked = np.array(leaves)
    except ValueError:
        raise _unlike(leaves, path) from None
    if stacked.dtype.kind in "biuc":
        return stacked
    if stacked.dtype.kind == "f":
        if all(np.issubdtype(dtype, np.integer) for dtype in _dtypes(leaves, kinds)):
            raise BatchError(
                f"{path}: integers that no 64-bit integer type holds together. "
                "Convert them to one type before batching."
            )
        return stacked
    return _stack_other(stacked, leaves, path)


def _dtypes(leaves: Sequence[Any], kinds: set[type]) -> set[Any]:
    if kinds == {np.ndarray}:
        return {leaf.dtype for leaf in leaves}
    return {np.asarray(leaf).dtype for leaf in leaves}


def _stack_other(stacked: NDArray[Any], leaves: Sequence[Any], path: str) -> NDArray[Any]:
    """Take text, times and objects, but only among their own kind."""
    dtypes = [np.asarray(leaf).dtype for leaf in leaves]
    if stacked.dtype.kind == "O" and all(map(_is_integer, leaves)):
        return stacked  # too large for 64 bits, and so kept as Python's own
    if len({dtype.kind for dtype in dtypes}) > 1:
        raise _unlike(leaves, path)
    if stacked.dtype.kind not in "USO" or stacked.ndim > 1:
        return stacked
    if stacked.dtype.kind != "O" and not any(map(_ends_in_nul, leaves)):
        return stacked
    objects = np.empty(len(leaves), dtype=object)
    for row, leaf in enumerate(leaves):  # one by one: NumPy would take a sequence apart
        objects[row] = leaf.item() if isinstance(leaf, np.ndarray) else leaf
    return objects


def _is_integer(leaf: Any) -> bool:
    return isinstance(leaf, int | np.integer)


def _ends_in_nul(leaf: Any) -> bool:
    """Tell a text that NumPy would hand back shorter: its texts end at the last non-NUL."""
    return isinstance(leaf, str | bytes) and leaf[-1:] in ("\0", b"\0")


def _as_array(leaf: Any, path: str) -> NDArray[Any]:
    if isinstance(leaf, np.ma.MaskedArray):
        raise BatchError(f"{path}: a masked array would lose its mask. Use `.filled()` before.")
    if isinstance(leaf, (SupportsArray, *_SCALARS)):
        return np.asarray(leaf)
    holder = np.empty((), dtype=object)
    holder[()] = leaf
    return holder


def _unlike(leaves: Sequence[Any], path: str) -> BatchError:
    """Name the first leaf that differs from the first of all, and how."""
    told = [_shape_or_type(leaf) for leaf in leaves]
    row = next((row for row, what in enumerate(told) if what != told[0]), 0)
    shapes = [np.shape(leaf) for leaf in (leaves[0], leaves[row])]
    if shapes[0] != shapes[1]:
        return BatchError(
            f"{path}: shapes {shapes[0]} and {shapes[1]}. "
            "Crop, resize or pad to one shape before batching, or pass a `batch_fn`.",
            row=row,
        )
    return BatchError(
        f"{path}: {told[0]} and {told[row]}. Give all records one type before batching.",
        row=row,
    )


def _shape_or_type(leaf: Any) -> str:
    if isinstance(leaf, np.ndarray):
        array = cast("NDArray[Any]", leaf)
        return f"{array.dtype}{list(array.shape)}"
    return type(leaf).__name__


def _kind(node: Any) -> str:
    return "None" if node is None else type(node).__name__
