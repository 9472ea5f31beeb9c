"""The order of keys in batches: sorted, as JAX orders a tree, and so does Grain."""

from collections import OrderedDict, defaultdict
from collections.abc import Hashable
from typing import Any, cast

from gristmill.types import Tree


def with_sorted_keys(tree: Tree) -> Tree:
    """Return a tree with the keys of its dicts in order. An `OrderedDict` keeps its own.

    Keys that cannot be compared stay as they are.

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
