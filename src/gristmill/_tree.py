"""Pytrees of dicts, lists, tuples, named tuples and dataclasses, without importing jax.

`None` is a tree without leaves, as in JAX. Anything else is a leaf.
"""

import copy
import dataclasses
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, cast

from gristmill.errors import BatchError
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
    names = _field_names(node)
    if isinstance(node, list | tuple):
        items = list(cast("Sequence[Any]", node))
        return _numbered(items) if names is None else ([f".{name}" for name in names], items)
    structure = jax_structure(node)
    if structure is not None:
        return _jax_children(node)
    if names is None:
        return None
    return [f".{name}" for name in names], [getattr(node, name) for name in names]


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
        if isinstance(node, dict) and kind is not dict:
            return partial(_refill, cast("dict[Any, Any]", node), keys)
        return partial(_make_mapping, kind, keys)
    names = _field_names(node)
    if isinstance(node, list | tuple):
        return kind if names is None else kind._make
    structure = jax_structure(node)
    if structure is not None:
        return structure.unflatten
    if names is None:
        raise TypeError(f"a leaf of type {kind.__name__} has no children to rebuild it from")
    return partial(_replace_fields, node, names)


def _make_mapping(kind: Any, keys: Sequence[Any], values: Sequence[Any]) -> Any:
    made = dict(zip(keys, values, strict=True))
    return made if kind is dict else kind(made)


def _refill(node: dict[Any, Any], keys: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    """Give a copy of a dict of the user's own kind, which may not take its items when made."""
    filled = copy.copy(node)
    for key, value in zip(keys, values, strict=True):
        filled[key] = value
    return filled


def _replace_fields(node: Any, names: Sequence[str], values: Sequence[Any]) -> Any:
    """Give a copy of a dataclass, which may be frozen or compute fields when made."""
    replaced = copy.copy(node)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(replaced, name, value)
    return replaced


def _subscript(key: Any) -> str:
    return f'["{key}"]' if isinstance(key, str) else f"[{key!r}]"


def _numbered(items: list[Any]) -> tuple[list[str], list[Any]]:
    return [f"[{number}]" for number in range(len(items))], items


def _field_names(node: Any) -> tuple[str, ...] | None:
    """Give the names of a named tuple's or a dataclass's fields, or `None` for anything else."""
    if isinstance(node, tuple):
        return cast("tuple[str, ...] | None", getattr(cast(Any, node), "_fields", None))
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return tuple(field.name for field in dataclasses.fields(node))
    return None


def jax_structure(node: Any) -> Any:
    """Give JAX's own view of a node whose class is registered there, if JAX is in use at all."""
    if type(node) in _ONLY_JAX_KNOWS:
        raise BatchError(
            f"{type(node).__name__} is a pytree that your script registers with JAX, and a worker "
            "does not run your script. Define it in a module, or use `worker_count=0`."
        )
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return None
    structure = jax.tree_util.tree_structure(node, is_leaf=partial(operator.is_not, node))
    return None if jax.tree_util.treedef_is_leaf(structure) else structure


_ONLY_JAX_KNOWS: set[type] = set()
"""Classes that JAX takes apart in the parent of this process, and cannot here."""


def refuse_pytrees(kinds: Iterable[type]) -> None:
    """Have elements of these classes refused, rather than taken apart as JAX would not."""
    _ONLY_JAX_KNOWS.update(kinds)


def is_jax_pytree(kind: type[Any]) -> bool:
    """Tell whether JAX knows how to take objects of a class apart."""
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return False
    try:
        blank = object.__new__(kind)
    except TypeError:  # a tuple, a dict, an exception: those we know ourselves
        return False
    try:
        return jax_structure(blank) is not None
    except Exception:  # its function looked for what a blank one has not: so there is one
        return True


def _jax_children(node: Any) -> tuple[list[str], list[Any]]:
    flatten_with_path: Any = sys.modules["jax"].tree_util.tree_flatten_with_path
    inner = flatten_with_path(node, is_leaf=partial(operator.is_not, node))[0]
    return [str(path[0]) for path, _ in inner], [child for _, child in inner]


def map_leaves(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Give a tree of the same shape with `function` of each leaf.

    >>> map_leaves(str, {"a": 1, "b": (2, None)})
    {'a': '1', 'b': ('2', None)}
    """
    inner = children(tree)
    if inner is None:
        return function(tree)
    return builder(tree)([map_leaves(function, child) for child in inner[1]])


def flatten(tree: Tree) -> tuple[list[Any], Callable[[Sequence[Any]], Tree]]:
    """Give the leaves, and the function that puts others in their places.

    >>> leaves, unflatten = flatten({"a": 1, "b": (2, None)})
    >>> leaves, unflatten(["x", "y"])
    ([1, 2], {'a': 'x', 'b': ('y', None)})
    """
    inner = children(tree)
    if inner is None:
        return [tree], lambda leaves: leaves[0]
    build = builder(tree)
    parts = [flatten(child) for child in inner[1]]
    leaves = [leaf for part, _ in parts for leaf in part]
    if all(children(child) is None for child in inner[1]):
        return leaves, build
    ends = list(accumulate(len(part) for part, _ in parts))

    def unflatten(values: Sequence[Any]) -> Tree:
        starts = [0, *ends]
        return build(
            [
                part(values[start:end])
                for (_, part), start, end in zip(parts, starts, ends, strict=False)
            ]
        )

    return leaves, unflatten


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
