"""Pytrees of dicts, lists, tuples, named tuples and dataclasses, without importing jax.

`None` is a tree without leaves, as in JAX. Anything else is a leaf.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from gristmill.types import Tree


def children(node: Tree) -> tuple[list[str], list[Any]] | None:
    """Give how each child is reached and the children themselves, or `None` for a leaf.

    >>> children({"image": 1, "label": 2})
    (['["image"]', '["label"]'], [1, 2])
    """
    if node is None:
        return [], []
    if isinstance(node, Mapping):
        mapping = cast("Mapping[Any, Any]", node)
        return [_subscript(key) for key in mapping], list(mapping.values())
    if isinstance(node, list | tuple):
        items = list(cast("Sequence[Any]", node))
        names = field_names(node)
        if names is None:
            return [f"[{number}]" for number in range(len(items))], items
        return [f".{name}" for name in names], items
    names = field_names(node)
    if names is None:
        return None
    return [f".{name}" for name in names], [getattr(node, name) for name in names]


def _subscript(key: Any) -> str:
    return f'["{key}"]' if isinstance(key, str) else f"[{key!r}]"


def field_names(node: Any) -> tuple[str, ...] | None:
    """Give the names of a named tuple's or a dataclass's fields, or `None` for anything else."""
    if isinstance(node, tuple):
        return cast("tuple[str, ...] | None", getattr(cast(Any, node), "_fields", None))
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return tuple(field.name for field in dataclasses.fields(node))
    return None


def builder(node: Tree) -> Callable[[Sequence[Any]], Any]:
    """Give the function that makes a node like this one out of new children.

    >>> builder({"a": 1, "b": 2})([3, 4])
    {'a': 3, 'b': 4}
    """
    if node is None:
        return lambda values: None
    kind = cast(Any, type(node))
    if isinstance(node, Mapping):
        keys = tuple(cast("Mapping[Any, Any]", node))
        if kind is dict:
            return lambda values: dict(zip(keys, values, strict=True))
        if isinstance(node, defaultdict):
            factory = cast("defaultdict[Any, Any]", node).default_factory
            return lambda values: kind(factory, zip(keys, values, strict=True))
        return lambda values: kind(zip(keys, values, strict=True))
    if isinstance(node, list | tuple):
        return kind if field_names(node) is None else kind._make
    names = field_names(node)
    if names is None:
        raise TypeError(f"a leaf of type {kind.__name__} has no children to rebuild it from")
    return lambda values: kind(**dict(zip(names, values, strict=True)))


def map_leaves(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Give a tree of the same shape with `function` of each leaf.

    >>> map_leaves(str, {"a": 1, "b": (2, None)})
    {'a': '1', 'b': ('2', None)}
    """
    inner = children(tree)
    if inner is None:
        return function(tree)
    return builder(tree)([map_leaves(function, child) for child in inner[1]])


def leaves_with_paths(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Give each leaf after the way to it.

    >>> list(leaves_with_paths({"a": 1, "b": (2, None)}, "batch"))
    [('batch["a"]', 1), ('batch["b"][0]', 2)]
    """
    inner = children(tree)
    if inner is None:
        yield path, tree
        return
    for step, child in zip(*inner, strict=True):
        yield from leaves_with_paths(child, path + step)
