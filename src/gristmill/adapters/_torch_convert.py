"""What PyTorch's datasets give, as NumPy: one item, or many of them leaf by leaf.

Many small tensors are stacked by PyTorch in one call and become one array: an array for each of
them would take as long as reading them.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._columns import Columns
from gristmill._tree import children, map_leaves
from gristmill.adapters._torch_tensor import (
    is_picture,
    is_tensor,
    load_torch,
    own_array,
    shared_array,
)
from gristmill.types import Element, Tree

_PLAIN = {np.ndarray, bool, int, float, complex, str, bytes}
"""The types of leaves that are given as they are, and need no look at whether they are trees."""

_SMALL_BYTES = 16_384
"""Larger ones are not stacked here: copying them twice would take longer than it saves."""


def to_numpy(item: Any) -> Element:
    """Give an item with its tensors and pictures as arrays, and the rest of it as it is.

    >>> import torch
    >>> to_numpy({"x": torch.arange(3), "y": torch.tensor(1.5), "z": "text"})
    {'x': array([0, 1, 2]), 'y': np.float32(1.5), 'z': 'text'}
    """
    kind = cast(Any, type(item))
    if kind in _PLAIN or item is None:
        return item
    if kind is tuple or kind is list:
        return _make(kind, [to_numpy(part) for part in item])
    if kind is dict:
        return {key: to_numpy(part) for key, part in item.items()}
    if is_tensor(item):
        return own_array(item)
    if is_picture(item):
        return np.asarray(item)
    return item if children(item) is None else map_leaves(to_numpy, item)


def many_to_numpy(items: list[Any]) -> Columns | list[Element]:
    """Give many items as columns where they hold tensors alike; else one by one.

    >>> import torch
    >>> many_to_numpy([{"x": torch.tensor([i, i]), "y": i} for i in range(3)])[1:].rows()
    [{'x': array([1, 1]), 'y': 1}, {'x': array([2, 2]), 'y': 2}]
    """
    if len(items) <= 1:
        return [to_numpy(item) for item in items]
    stacker = _Stacker()
    try:
        tree = stacker.stack(items)
    except _UnlikeError:
        return [to_numpy(item) for item in items]
    if not stacker.has_stacked:
        return items
    leaves = list(cast("tuple[Any, ...]", tree)) if type(tree) is tuple else []
    if leaves and {*map(type, leaves)} == {np.ndarray}:  # as most are: no need to look for more
        return Columns(leaves, tuple, range(len(items)))
    return Columns.of(tree, range(len(items)))


class _UnlikeError(Exception):
    """The items do not fit into columns. Never reaches the user."""


@final
class _Stacker:
    """Makes a column of each leaf of many items."""

    def __init__(self) -> None:
        self.has_stacked = False
        """Whether there was a tensor at all."""

    def stack(self, nodes: Sequence[Any]) -> Tree:
        """Give a tree like each of the nodes, of columns."""
        kinds: set[Any] = set(map(type, nodes))
        if kinds <= _PLAIN:
            return _as_objects(nodes)
        if len(kinds) > 1:
            raise _UnlikeError
        kind = kinds.pop()
        if is_tensor(nodes[0]) and kind is load_torch().Tensor:
            self.has_stacked = True
            return self._stack_tensors(nodes)
        if kind is dict:
            keys = _only({*map(tuple, nodes)})
            return {key: self.stack(list(map(itemgetter(key), nodes))) for key in keys}
        if kind is tuple or kind is list or _is_named(kind):
            if not _only({*map(len, nodes)}):
                raise _UnlikeError
            columns = [self.stack(column) for column in zip(*nodes, strict=True)]
            return _make(kind, columns)
        if issubclass(kind, np.generic):
            return _as_objects(nodes)
        raise _UnlikeError

    def _stack_tensors(self, tensors: Sequence[Any]) -> NDArray[Any]:
        first = tensors[0]
        if first.nbytes > _SMALL_BYTES:
            raise _UnlikeError
        _only({*map(_DTYPE, tensors)})  # PyTorch would promote them without a word
        try:
            stacked = load_torch().stack(tensors)
        except RuntimeError:
            raise _UnlikeError from None
        return shared_array(stacked)


_DTYPE: Callable[[Any], Any] = attrgetter("dtype")


def _only(values: set[Any]) -> Any:
    """Give the one value that all have in common."""
    if len(values) > 1:
        raise _UnlikeError
    return values.pop()


def _is_named(kind: Any) -> bool:
    return issubclass(kind, tuple) and getattr(cast(Any, kind), "_fields", None) is not None


def _make(kind: Any, parts: Sequence[Any]) -> Any:
    return kind._make(parts) if _is_named(kind) else kind(parts)


def _as_objects(leaves: Sequence[Any]) -> NDArray[Any]:
    """Give leaves as an array that hands out the very same, so that each keeps its type."""
    objects = np.empty(len(leaves), dtype=object)
    if isinstance(leaves[0], np.ndarray) or np.ndarray in set(map(type, leaves)):
        for row, leaf in enumerate(leaves):  # NumPy would take them apart
            objects[row] = leaf
    else:
        objects[:] = cast(Any, leaves)
    return objects
