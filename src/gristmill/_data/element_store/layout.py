"""The layout of elements that are numbers: one tree, and one dtype and shape for each leaf.

Such elements are stored as columns. The layout is kept as JSON beside them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias, cast, final

import numpy as np

from gristmill._base.trees.columns import Allocate, as_numpy_index
from gristmill._data.element_store.codec import CodecError, as_dtype
from gristmill.types import AnyArray, AnyDType, Element, Leaf, Span, Tree

Json: TypeAlias = Any

_PYTHON_TYPES: dict[type, str] = {bool: "bool", int: "int", float: "float"}
_PYTHON_DTYPES: dict[str, AnyDType] = {
    "bool": np.dtype(bool),
    "int": np.dtype(np.int64),
    "float": np.dtype(np.float64),
}
_MAX_BYTES = 2**48
_MAX_DEPTH = 50
_MAX_LEAVES = 1000
"""Leaves of a layout, each of which is a map of its own."""


@final
@dataclass(frozen=True, kw_only=True)
class LeafLayout:
    """The type of a leaf: an `array`, a `scalar` of NumPy, or a Python number."""

    kind: str
    dtype: AnyDType
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of one item."""
        return prod(self.shape) * self.dtype.itemsize


@final
@dataclass(frozen=True, kw_only=True)
class ElementLayout:
    """The tree of an element as JSON, and its leaves in order."""

    tree: Json
    leaves: tuple[LeafLayout, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of one element."""
        return sum(leaf.num_bytes for leaf in self.leaves)

    def leaves_of(self, element: Element) -> list[AnyArray] | None:
        """Return the leaves of an element as arrays, or `None` if it has another layout."""
        leaves: list[Leaf] = []
        if _tree_of(element, leaves, 0) != self.tree:
            return None
        pairs = zip(leaves, self.leaves, strict=True)
        return [np.asarray(leaf, layout.dtype, order="C") for leaf, layout in pairs]

    def unflatten(self, leaves: Sequence[Leaf]) -> Tree:
        """Return the tree of some leaves: of one element, or of columns."""
        return _unflatten(self.tree, iter(leaves))

    def column(self, number: int, stored: AnyArray) -> "AnyArray | PythonNumbers":
        """Return the stored items of a leaf as a column with the leaf's type."""
        kind = self.leaves[number].kind
        return PythonNumbers(stored) if kind in _PYTHON_DTYPES else stored


def layout_of(element: Element) -> ElementLayout | None:
    """Return the layout of an element, or `None` if a leaf is not a number or array of numbers.

    >>> layout_of({"image": np.zeros((2, 3), np.uint8), "label": 7}).num_bytes
    14
    """
    return parse_layout(_tree_of(element, [], 0))


def parse_layout(tree: Json) -> ElementLayout | None:
    """Return the layout that JSON describes, or `None` if it describes none."""
    leaves: list[LeafLayout] = []
    try:
        _check(tree, leaves, 0)
    except (CodecError, TypeError, ValueError, KeyError):
        return None
    layout = ElementLayout(tree=tree, leaves=tuple(leaves))
    is_bounded = len(leaves) <= _MAX_LEAVES and layout.num_bytes <= _MAX_BYTES
    return layout if leaves and is_bounded else None


def _tree_of(value: Any, leaves: list[Leaf], depth: int) -> Json:
    """Return the tree of an element as JSON; `None` in it stands for what has no layout."""
    kind = cast(Any, type(value))
    if depth > _MAX_DEPTH:
        return None
    if kind is dict:
        mapping = cast("dict[Any, Any]", value)
        if not all(type(key) is str for key in mapping):
            return None
        items = [[key, _tree_of(child, leaves, depth + 1)] for key, child in mapping.items()]
        return {"dict": items}
    if kind is list or kind is tuple:
        children = [_tree_of(child, leaves, depth + 1) for child in cast("list[Any]", value)]
        return {kind.__name__: children}
    if value is None:
        return {"list": None}
    leaves.append(value)
    if kind in _PYTHON_TYPES:
        is_large = kind is int and not -(2**63) <= value < 2**63
        return None if is_large else {_PYTHON_TYPES[kind]: []}
    if kind is np.ndarray or issubclass(kind, np.generic):
        dtype = cast("AnyArray", value).dtype
        if dtype.kind not in "biufcmM" or not dtype.isnative:
            return None
        shape = list(cast("AnyArray", value).shape)
        if kind is np.ndarray and not shape:  # the items of a column would be scalars
            return None
        return {"array" if kind is np.ndarray else "scalar": [dtype.str, shape]}
    return None


def _check(tree: Json, leaves: list[LeafLayout], depth: int) -> None:
    """Append the leaves of a tree.

    Raises:
        CodecError, TypeError, ValueError, KeyError: The JSON is not that of a tree.
    """
    if depth > _MAX_DEPTH or len(leaves) > _MAX_LEAVES or type(tree) is not dict:
        raise ValueError
    ((kind, content),) = cast("dict[str, Json]", tree).items()
    if kind == "dict":
        for key, child in content:
            if type(key) is not str:
                raise ValueError
            _check(child, leaves, depth + 1)
    elif kind in ("list", "tuple"):
        for child in content or ():
            _check(child, leaves, depth + 1)
    elif kind in ("array", "scalar"):
        name, shape = content
        dtype, sizes = as_dtype(name), tuple(shape)
        if dtype.kind not in "biufcmM" or len(sizes) > 32 or (kind == "scalar" and sizes):
            raise ValueError
        if not all(type(size) is int and size >= 0 for size in sizes):
            raise ValueError
        leaves.append(LeafLayout(kind=kind, dtype=dtype, shape=sizes))
    else:
        leaves.append(LeafLayout(kind=kind, dtype=_PYTHON_DTYPES[kind], shape=()))


def _unflatten(tree: Json, leaves: Iterator[Leaf]) -> Tree:
    ((kind, content),) = tree.items()
    if kind == "dict":
        return {key: _unflatten(child, leaves) for key, child in content}
    if kind in ("list", "tuple"):
        if content is None:
            return None
        children = [_unflatten(child, leaves) for child in content]
        return children if kind == "list" else tuple(children)
    return next(leaves)


@final
class PythonNumbers:
    """A column of Python numbers, which a batch holds as an array."""

    is_list = False
    has_own_items = True

    def __init__(self, stored: AnyArray) -> None:
        self._stored = stored
        self.dtype = stored.dtype
        self.shape = stored.shape

    def gather(self, indices: Span, allocate: Allocate, /) -> AnyArray:
        """Return the numbers as an array."""
        out = allocate((len(indices),), self.dtype)
        out[:] = self._stored[as_numpy_index(indices)]
        return out

    def items(self, indices: Span, /) -> list[Leaf]:
        """Return the numbers as Python numbers."""
        return self._stored[as_numpy_index(indices)].tolist()
