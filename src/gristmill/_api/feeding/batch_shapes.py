"""Shapes of batches as JSON, which a process that never had a batch reads from another one.

They are not pickled: a program that can write to the store of a job could run any code in it.
"""

import json
from typing import Any, cast, final

import numpy as np

from gristmill._base.trees.tree import map_leaves
from gristmill.errors import FeedError
from gristmill.types import AnyDType, Leaf, Tree

_PLAIN = (bool, int, float, str, type(None))


@final
class LeafShape:
    """The shape and dtype of an array. Any other leaf is stored as it is."""

    def __init__(self, shape: tuple[int, ...] | None, dtype: AnyDType | None, leaf: Leaf) -> None:
        self.shape = shape
        self.dtype = dtype
        self.leaf = leaf

    def zeros(self) -> Leaf:
        """Return an array of zeros of this shape, or the leaf."""
        return self.leaf if self.shape is None else np.zeros(self.shape, self.dtype)


def zeros_like(shapes: Tree) -> Tree:
    """Return a batch of zeros from a tree of shapes."""
    return map_leaves(_zeros, shapes)


def _zeros(leaf: Leaf) -> Leaf:
    return leaf.zeros() if isinstance(leaf, LeafShape) else leaf


def dump_shapes(shapes: Tree) -> str:
    """Return a tree of dicts, lists and tuples as JSON; `null` if it has anything else in it.

    >>> load_shapes(dump_shapes({"x": (4, [2.0, None])}))
    {'x': (4, [2.0, None])}
    """
    try:
        return json.dumps(_encode(shapes))
    except (TypeError, ValueError):
        return "null"


def load_shapes(text: str) -> Tree:
    """Return the tree of shapes that `dump_shapes` made.

    Raises:
        FeedError: If the tree could not be written, or is damaged.
    """
    try:
        return _decode(json.loads(text))
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
        raise FeedError(
            "This process has no batch, and cannot learn the shapes from the others: with "
            '`remainder="pad"`, the batches must be dicts, lists or tuples of arrays and plain '
            "values. Distribute the records so that each process has at least one batch."
        ) from None


def _encode(value: Any) -> dict[str, Any]:
    kind = cast("type[Any]", type(value))
    if kind is LeafShape:
        if value.shape is None:
            return _encode(value.leaf)
        name = value.dtype.name if value.dtype.kind == "V" else value.dtype.str
        if np.dtype(name) != value.dtype:
            raise TypeError(name)
        return {"array": [list(value.shape), name]}
    if kind is dict:
        items = cast("dict[Any, Any]", value).items()
        return {"dict": [[_plain(key), _encode(item)] for key, item in items]}
    if kind in (list, tuple):
        name = "list" if kind is list else "tuple"
        return {name: [_encode(item) for item in value]}
    return {"value": _plain(value)}


def _plain(value: Any) -> Any:
    if type(value) not in _PLAIN:
        raise TypeError(value)
    return value


def _decode(node: dict[str, Any]) -> Tree:
    ((kind, value),) = node.items()
    if kind == "array":
        shape, name = value
        return LeafShape(tuple(map(int, shape)), np.dtype(str(name)), None)
    if kind == "dict":
        return {key: _decode(item) for key, item in value}
    if kind in ("list", "tuple"):
        items = [_decode(item) for item in value]
        return items if kind == "list" else tuple(items)
    if kind == "value":
        return _plain(value)
    raise ValueError(kind)
