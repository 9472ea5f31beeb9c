"""Converts items of PyTorch datasets to NumPy: one item, or many items as columns.

Many small tensors stay tensors until a batch is made of them, and are then stacked by PyTorch in
one call: making an array of each would take as long as reading them.
"""

from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar, cast, final

import numpy as np

from gristmill._api.adapters.torch.tensor import (
    Tensor,
    is_image,
    is_tensor,
    load_torch,
    to_owned_array,
    view_as_array,
    view_as_tensor,
)
from gristmill._base.memory.aligned_alloc import aligned_empty
from gristmill._base.trees.columns import Allocate, Columns, RaggedError, as_numpy_index
from gristmill._base.trees.tree import children, flatten, map_leaves
from gristmill.types import AnyArray, Element, Leaf, Span, Tree

Item: TypeAlias = Any
"""An item of a PyTorch dataset, or a node of it: any pytree."""

H = TypeVar("H", bound=Hashable)

_PLAIN_TYPES = {np.ndarray, bool, int, float, complex, str, bytes}
"""Types of leaves that are not converted. They are recognized without a look at their children."""

_EXACT_KINDS = "biu"
"""Kinds of numbers that a Python number holds exactly. Reading them one by one from tensors without
axes, such as labels, takes half the time of `torch.stack`."""


def to_numpy(item: Item) -> Element:
    """Return an item with its tensors and Pillow images as arrays. Other leaves are kept.

    >>> import torch
    >>> to_numpy({"x": torch.arange(3), "y": torch.tensor(1.5), "z": "text"})
    {'x': array([0, 1, 2]), 'y': np.float32(1.5), 'z': 'text'}
    """
    kind = type(cast(object, item))
    if kind in _PLAIN_TYPES or item is None:
        return item
    if kind is tuple or kind is list:
        return _build_sequence(kind, [to_numpy(child) for child in item])
    if kind is dict:
        return {key: to_numpy(child) for key, child in item.items()}
    if is_tensor(item):
        return to_owned_array(item)
    if is_image(item):
        return np.asarray(item)
    return item if children(item) is None else map_leaves(to_numpy, item)


def many_to_numpy(items: list[Item]) -> Columns | list[Element]:
    """Return many items as columns if they hold tensors and have one structure, else as rows.

    >>> import torch
    >>> many_to_numpy([{"x": torch.tensor([i, i]), "y": i} for i in range(3)])[1:].rows()
    [{'x': array([1, 1]), 'y': 1}, {'x': array([2, 2]), 'y': 2}]
    """
    if len(items) < 2:  # a single tensor need not be copied
        return [to_numpy(item) for item in items]
    try:
        tree = _transpose(items)
    except _MismatchError:
        return [to_numpy(item) for item in items]
    leaves = list(cast("tuple[Leaf, ...]", tree)) if type(tree) is tuple else []
    if not leaves or {*map(type, leaves)} - {_PlainColumn, TensorColumn}:  # most items are flat
        leaves, unflatten = flatten(tree)
    else:
        unflatten = tuple
    if not any(isinstance(leaf, TensorColumn) for leaf in leaves):
        return items
    columns = [
        leaf.to_object_array() if isinstance(leaf, _PlainColumn) else leaf for leaf in leaves
    ]
    return Columns(columns, unflatten, range(len(items)))


@final
class TensorColumn:
    """A column of tensors of one dtype, one for each item, that are stacked when it is gathered."""

    is_list = True
    has_own_items = False

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        first = view_as_array(tensors[0])
        self._tensors = tensors
        self.dtype = first.dtype
        self.shape = (len(tensors), *first.shape)

    def gather(self, picks: Span, allocate: Allocate, /) -> AnyArray:
        """Return the picked tensors, stacked into one array.

        Raises:
            RaggedError: If they have several shapes.
        """
        picked = self._pick(picks)
        if not picked:
            return allocate((0, *self.shape[1:]), self.dtype)
        try:
            if len(self.shape) == 1 and self.dtype.kind in _EXACT_KINDS:
                to_number: Callable[[Tensor], Leaf] = load_torch().Tensor.tolist
                return np.array(list(map(to_number, picked)), self.dtype)
            if allocate is aligned_empty or allocate is np.empty:
                return view_as_array(load_torch().stack(picked))  # aligned, too
            return _stack_into(allocate((len(picked), *picked[0].shape), self.dtype), picked)
        except (RuntimeError, ValueError):
            raise RaggedError from None

    def items(self, picks: Span, /) -> list[Leaf]:
        """Return the picked tensors as separate arrays."""
        return list(map(to_owned_array, self._pick(picks)))

    def _pick(self, picks: Span) -> Sequence[Tensor]:
        index = as_numpy_index(picks)
        if isinstance(index, slice):
            return self._tensors[index]
        return [self._tensors[pick] for pick in index.tolist()]


def _stack_into(out: AnyArray, tensors: Sequence[Tensor]) -> AnyArray:
    target = view_as_tensor(out)
    if target is None:
        out[...] = view_as_array(load_torch().stack(tensors))
    else:
        load_torch().stack(tensors, out=target)
    return out


@final
class _PlainColumn:
    """A column of leaves that are not converted."""

    def __init__(self, leaves: Sequence[Item]) -> None:
        self._leaves = leaves

    def to_object_array(self) -> AnyArray:
        """Return an object array of the same leaves, so that each keeps its type."""
        leaves = self._leaves
        objects = np.empty(len(leaves), dtype=object)
        if np.ndarray in set(map(type, leaves)):
            for row, leaf in enumerate(leaves):  # a single assignment would split the arrays
                objects[row] = leaf
        else:
            objects[:] = leaves
        return objects


class _MismatchError(Exception):
    """The items do not fit into columns. Never reaches the user."""


def _transpose(nodes: Sequence[Item]) -> Tree:
    """Return a tree of the structure that all nodes have, whose leaves are columns."""
    kinds: set[type] = set(map(type, nodes))
    if kinds <= _PLAIN_TYPES:
        return _PlainColumn(nodes)
    kind = _single_value(kinds)
    if kind is load_torch().Tensor:
        return _make_tensor_column(nodes)
    if kind is dict:
        _single_value({*map(len, nodes)})
        try:
            columns = {key: list(map(itemgetter(key), nodes)) for key in nodes[0]}
        except KeyError:
            raise _MismatchError from None
        return {key: _transpose(column) for key, column in columns.items()}
    if kind is tuple or kind is list or _is_named_tuple(kind):
        try:
            columns = list(zip(*nodes, strict=True))
        except ValueError:  # the sequences have several lengths
            raise _MismatchError from None
        if not columns:
            raise _MismatchError
        return _build_sequence(kind, [_transpose(column) for column in columns])
    if issubclass(kind, np.generic):
        return _PlainColumn(nodes)
    raise _MismatchError


def _make_tensor_column(tensors: Sequence[Tensor]) -> TensorColumn:
    dtypes = [tensor.dtype for tensor in tensors]
    if dtypes.count(dtypes[0]) < len(dtypes):  # `torch.stack` would promote them silently
        raise _MismatchError
    return TensorColumn(tensors)


def _single_value(values: set[H]) -> H:
    """Return the only value of a set.

    Raises:
        _MismatchError: If there are several.
    """
    if len(values) > 1:
        raise _MismatchError
    return values.pop()


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and getattr(cast(type, kind), "_fields", None) is not None


def _build_sequence(kind: Any, values: Sequence[Tree]) -> Tree:
    return kind._make(values) if _is_named_tuple(kind) else kind(values)
