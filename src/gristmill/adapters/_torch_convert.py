"""What PyTorch's datasets give, as NumPy: one item, or many of them leaf by leaf.

Many small tensors are kept as they are until a batch is made of them, and are then stacked by
PyTorch in one call: an array for each of them would take as long as reading them.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._columns import Columns, RaggedError, as_key
from gristmill._tree import children, flatten, map_leaves
from gristmill.adapters._torch_tensor import (
    as_tensor,
    is_picture,
    is_tensor,
    load_torch,
    own_array,
    shared_array,
)
from gristmill.types import Element, Span, Tree

_PLAIN = {np.ndarray, bool, int, float, complex, str, bytes}
"""The types of leaves that are given as they are, and need no look at whether they are trees."""

_SMALL_BYTES = 16_384
"""Larger ones are made arrays one by one, which then takes next to no time."""


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
    if len(items) < 2:  # one tensor by itself need not be copied
        return [to_numpy(item) for item in items]
    try:
        tree = _transposed(items)
    except _UnlikeError:
        return [to_numpy(item) for item in items]
    leaves = list(cast("tuple[Any, ...]", tree)) if type(tree) is tuple else []
    if not leaves or {*map(type, leaves)} - {_Plain, TensorColumn}:  # not flat, as most are
        leaves, unflatten = flatten(tree)
    else:
        unflatten = tuple
    if not any(isinstance(leaf, TensorColumn) for leaf in leaves):
        return items
    columns = [leaf.as_objects() if isinstance(leaf, _Plain) else leaf for leaf in leaves]
    return Columns(columns, unflatten, range(len(items)))


@final
class TensorColumn:
    """Tensors of one dtype, one for each item."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        first = shared_array(tensors[0])
        self._tensors = tensors
        self.dtype = first.dtype
        self.shape = (len(tensors), *first.shape)

    def fill(self, out: NDArray[Any], picks: Span, /) -> None:
        """Stack the picked tensors, if they have one shape."""
        torch: Any = load_torch()
        chosen = self._chosen(picks)
        if chosen and chosen[0].shape != out.shape[1:]:
            raise RaggedError
        target = as_tensor(out)
        try:
            if target is None:
                out[...] = shared_array(torch.stack(chosen))
            elif chosen:
                torch.stack(chosen, out=target)
        except RuntimeError:
            raise RaggedError from None

    def items(self, picks: Span, /) -> list[Any]:
        """Give the picked ones as arrays."""
        return list(map(own_array, self._chosen(picks)))

    def _chosen(self, picks: Span) -> Any:
        if isinstance(picks, range):
            return self._tensors[as_key(picks)]
        return [self._tensors[pick] for pick in picks.tolist()]


@final
class _Plain:
    """Leaves that are given as they are."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        self._leaves = leaves

    def as_objects(self) -> NDArray[Any]:
        """Give an array that hands out the very same, so that each keeps its type."""
        leaves = self._leaves
        objects = np.empty(len(leaves), dtype=object)
        if np.ndarray in set(map(type, leaves)):
            for row, leaf in enumerate(leaves):  # NumPy would take them apart
                objects[row] = leaf
        else:
            objects[:] = cast(Any, leaves)
        return objects


class _UnlikeError(Exception):
    """The items do not fit into columns. Never reaches the user."""


def _transposed(nodes: Sequence[Any]) -> Tree:
    """Give a tree like each of the nodes, its leaves all of those there."""
    kinds: set[Any] = set(map(type, nodes))
    if kinds <= _PLAIN:
        return _Plain(nodes)
    if len(kinds) > 1:
        raise _UnlikeError
    kind = kinds.pop()
    if kind is load_torch().Tensor:
        return _tensor_column(nodes)
    if kind is dict:
        keys = _only({*map(tuple, nodes)})
        return {key: _transposed(list(map(itemgetter(key), nodes))) for key in keys}
    if kind is tuple or kind is list or _is_named(kind):
        try:
            columns = list(zip(*nodes, strict=True))
        except ValueError:  # they are of several lengths
            raise _UnlikeError from None
        if not columns:
            raise _UnlikeError
        return _make(kind, [_transposed(column) for column in columns])
    if issubclass(kind, np.generic):
        return _Plain(nodes)
    raise _UnlikeError


def _tensor_column(tensors: Sequence[Any]) -> TensorColumn:
    if tensors[0].nbytes > _SMALL_BYTES:
        raise _UnlikeError
    _only({*map(_DTYPE, tensors)})  # PyTorch would promote them without a word
    return TensorColumn(tensors)


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
