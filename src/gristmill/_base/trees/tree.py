"""Pytrees of dicts, lists, tuples, named tuples and dataclasses, without importing jax.

`None` is a tree without leaves, as in JAX. Instances of classes that are registered with JAX are
nodes too, once the program has imported jax. Every other object is a leaf.
"""

import copy
import dataclasses
import operator
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Protocol, cast

from gristmill.errors import BatchError
from gristmill.types import Leaf, Tree


def children(node: Tree) -> tuple[list[str], list[Tree]] | None:
    """Return the path to each child and the children themselves, or `None` for a leaf.

    >>> children({"image": 1, "label": 2})
    (['["image"]', '["label"]'], [1, 2])
    """
    if node is None:
        return [], []
    if isinstance(node, Mapping):
        mapping = cast("Mapping[Hashable, Tree]", node)
        return [_format_key(key) for key in mapping], list(mapping.values())
    names = _field_names(node)
    if isinstance(node, list | tuple):
        items = list(cast("Sequence[Tree]", node))
        if names is None:
            return [f"[{number}]" for number in range(len(items))], items
        return [f".{name}" for name in names], items
    if jax_structure(node) is not None:
        return _jax_children(node)
    if names is None:
        return None
    return [f".{name}" for name in names], [getattr(node, name) for name in names]


def builder(node: Tree) -> Callable[[Sequence[Tree]], Tree]:
    """Return a function that makes a node of the same type from new children.

    >>> builder({"a": 1, "b": 2})([3, 4])
    {'a': 3, 'b': 4}
    """
    if node is None:
        return lambda values: None
    node_type = cast(Any, type(node))
    if isinstance(node, Mapping):
        keys = tuple(cast("Mapping[Hashable, Tree]", node))
        if isinstance(node, dict) and node_type is not dict:
            return partial(_copy_dict, cast("dict[Hashable, Tree]", node), keys)
        return partial(_make_mapping, node_type, keys)
    names = _field_names(node)
    if isinstance(node, list | tuple):
        return node_type if names is None else node_type._make
    structure = jax_structure(node)
    if structure is not None:
        return structure.unflatten
    if names is None:
        raise TypeError(f"a leaf of type {node_type.__name__} has no children to rebuild it from")
    return partial(_copy_dataclass, node, names)


def _make_mapping(
    node_type: Callable[[dict[Hashable, Tree]], Tree],
    keys: Sequence[Hashable],
    values: Sequence[Tree],
) -> Tree:
    made = dict(zip(keys, values, strict=True))
    return made if node_type is dict else node_type(made)


def _copy_dict(
    node: dict[Hashable, Tree], keys: Sequence[Hashable], values: Sequence[Tree]
) -> dict[Hashable, Tree]:
    """Copy an instance of a dict subclass, whose constructor may not accept items."""
    copied = copy.copy(node)
    for key, value in zip(keys, values, strict=True):
        copied[key] = value
    return copied


def _copy_dataclass(node: Tree, names: Sequence[str], values: Sequence[Tree]) -> Tree:
    """Copy a dataclass instance, which may be frozen or compute fields in its constructor."""
    copied = copy.copy(node)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(copied, name, value)
    return copied


def _format_key(key: Hashable) -> str:
    return f'["{key}"]' if isinstance(key, str) else f"[{key!r}]"


def _field_names(node: Tree) -> tuple[str, ...] | None:
    """Return the field names of a named tuple or a dataclass, or `None` for anything else."""
    if isinstance(node, tuple):
        return cast("tuple[str, ...] | None", getattr(cast(Tree, node), "_fields", None))
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return tuple(field.name for field in dataclasses.fields(node))
    return None


class PyTreeDef(Protocol):
    """The structure of a pytree, as JAX describes it. Structures can be compared."""

    @property
    def num_leaves(self) -> int: ...

    def unflatten(self, leaves: Iterable[Tree], /) -> Tree:
        """Return a tree of this structure."""
        ...


def jax_structure(node: Tree) -> PyTreeDef | None:
    """Return JAX's `PyTreeDef` of a node one level deep, or `None` if JAX treats it as a leaf.

    Returns `None` as long as the program has not imported jax.

    Raises:
        BatchError: If the class of the node was passed to `refuse_pytrees`.
    """
    if type(node) in _UNREGISTERED_PYTREES:
        raise BatchError(
            f"{type(node).__name__} is a pytree that your script registers with JAX, and a worker "
            "does not run your script. Define it in a module, or use `worker_count=0`."
        )
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return None
    structure = jax.tree_util.tree_structure(node, is_leaf=partial(operator.is_not, node))
    return None if jax.tree_util.treedef_is_leaf(structure) else structure


_UNREGISTERED_PYTREES: set[type] = set()
"""Classes that are registered with JAX in the parent process, but not in this worker."""


def refuse_pytrees(classes: Iterable[type]) -> None:
    """Make `jax_structure` raise an error for instances of these classes.

    Without their registration, they would be handled as leaves or as plain dataclasses.
    """
    _UNREGISTERED_PYTREES.update(classes)


def is_jax_pytree(cls: type) -> bool:
    """Return whether instances of a class are pytree nodes registered with JAX.

    Classes that this module handles itself, such as tuples and dicts, do not count.
    """
    if sys.modules.get("jax") is None:
        return False
    try:
        blank = cast(object, object.__new__(cls))
    except TypeError:  # a built-in type, such as a tuple, a dict or an exception
        return False
    try:
        return jax_structure(blank) is not None
    except Exception:  # a registered function ran, and an attribute of the blank was missing
        return True


def _jax_children(node: Tree) -> tuple[list[str], list[Tree]]:
    flatten_with_path: Any = sys.modules["jax"].tree_util.tree_flatten_with_path
    inner = flatten_with_path(node, is_leaf=partial(operator.is_not, node))[0]
    return [str(path[0]) for path, _ in inner], [child for _, child in inner]


def map_leaves(function: Callable[[Leaf], Leaf], tree: Tree) -> Tree:
    """Return a tree of the same structure with `function` applied to each leaf.

    >>> map_leaves(str, {"a": 1, "b": (2, None)})
    {'a': '1', 'b': ('2', None)}
    """
    inner = children(tree)
    if inner is None:
        return function(tree)
    return builder(tree)([map_leaves(function, child) for child in inner[1]])


def flatten(tree: Tree) -> tuple[list[Leaf], Callable[[Sequence[Leaf]], Tree]]:
    """Return the leaves, and a function that makes a tree of the same structure from others.

    >>> leaves, unflatten = flatten({"a": 1, "b": (2, None)})
    >>> leaves, unflatten(["x", "y"])
    ([1, 2], {'a': 'x', 'b': ('y', None)})
    """
    inner = children(tree)
    if inner is None:
        return [tree], lambda leaves: leaves[0]
    build = builder(tree)
    flattened = [flatten(child) for child in inner[1]]
    leaves = [leaf for child_leaves, _ in flattened for leaf in child_leaves]
    if all(children(child) is None for child in inner[1]):
        return leaves, build
    ends = list(accumulate(len(child_leaves) for child_leaves, _ in flattened))

    def unflatten(values: Sequence[Leaf]) -> Tree:
        starts = [0, *ends]
        return build(
            [
                unflatten_child(values[start:end])
                for (_, unflatten_child), start, end in zip(flattened, starts, ends, strict=False)
            ]
        )

    return leaves, unflatten


def leaves_with_paths(tree: Tree, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield the path and the value of each leaf. Paths start with `path`.

    >>> list(leaves_with_paths({"a": 1, "b": (2, None)}, "batch"))
    [('batch["a"]', 1), ('batch["b"][0]', 2)]
    """
    inner = children(tree)
    if inner is None:
        yield path, tree
        return
    for child_path, child in zip(*inner, strict=True):
        yield from leaves_with_paths(child, path + child_path)


def with_sorted_keys(tree: Tree) -> Tree:
    """Return a tree with the keys of its dicts in order, as in JAX and in the batches of Grain.

    An `OrderedDict` keeps its own order. Keys that cannot be compared stay as they are.

    >>> with_sorted_keys({"b": 1, "a": [{"d": 2, "c": 3}]})
    {'a': [{'c': 3, 'd': 2}], 'b': 1}
    """
    kind = cast("type[Any]", type(tree))
    if kind is dict or kind is defaultdict:
        items = cast("dict[Hashable, Tree]", tree)
        made = {key: with_sorted_keys(items[key]) for key in sorted_keys(items)}
        return made if kind is dict else defaultdict(tree.default_factory, made)
    if kind is OrderedDict:
        return OrderedDict((key, with_sorted_keys(value)) for key, value in tree.items())
    if kind is list or kind is tuple:
        children = list(map(with_sorted_keys, cast("list[Tree]", tree)))
        return children if kind is list else tuple(children)
    if isinstance(tree, tuple):
        make = getattr(kind, "_make", None)  # of a named tuple
        values = cast("tuple[Tree, ...]", tree)
        return values if make is None else make(map(with_sorted_keys, values))
    return tree


def sorted_keys(items: dict[Hashable, Tree]) -> list[Hashable]:
    """Return the keys of a dict in order, or as they are if they cannot be compared."""
    keys: list[Any] = list(items)
    try:
        return sorted(keys)
    except TypeError:
        return keys
