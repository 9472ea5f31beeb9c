"""Options of padding: one value for all arrays of an element, or one for each of them."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from gristmill._base.checks import as_bool, as_int
from gristmill._base.trees.tree import children
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Tree

T = TypeVar("T")

Keys: TypeAlias = tuple[Hashable, ...]
"""The keys that lead from an element to one of its arrays."""


def option_at(option: Any, keys: Keys) -> Any:
    """Return the value of an option for an array; `None` if it does not mention the array.

    >>> option_at({"text": {"tokens": 8}}, ("text", "tokens")), option_at(8, ("text",))
    (8, 8)
    >>> option_at({"text": 8}, ("label",))
    """
    for key in keys:
        if not isinstance(option, Mapping):
            break
        option = cast("Mapping[Hashable, Any]", option).get(key)
    return None if isinstance(option, Mapping) else option


def check_option(name: str, option: Any, check: Callable[[str, Any], T]) -> Any:
    """Return an option with each of its values checked, in a copy of its dicts."""
    if isinstance(option, Mapping):
        items = cast("Mapping[Hashable, Any]", option).items()
        return {key: check_option(f"{name}[{key!r}]", value, check) for key, value in items}
    return option if option is None else check(name, option)


def check_size(name: str, value: object) -> int:
    """Return a length, or a number that lengths are a multiple of."""
    return as_int(name, value, minimum=1)


def check_flag(name: str, value: object) -> bool:
    """Return whether to add something."""
    return as_bool(name, value)


def check_side(name: str, value: object) -> str:
    """Return the side to pad."""
    if value not in ("left", "right"):
        raise PlanError(f'`{name}` must be "left" or "right", got {value!r:.100}.')
    return cast("str", value)


def check_leaves(leaves: object) -> tuple[Hashable, ...] | None:
    """Return the keys of the arrays to pad."""
    if leaves is None:
        return None
    if isinstance(leaves, str | int):
        return (leaves,)
    if not isinstance(leaves, Sequence | set | frozenset):
        raise PlanTypeError(
            f"`leaves` must be a key of the elements, or a list of them, got {leaves!r:.100}."
        )
    return tuple(cast("Sequence[Hashable]", leaves))


def check_keys(name: str, option: Any, node: Tree, path: str) -> None:
    """Raise if an option has a value for an array that the elements do not have.

    Args:
        name: The name of the option.
        option: One value for all arrays, or a dict in the structure of the elements.
        node: An element, or what is at `path` in it.
        path: Where that is, for the error.
    """
    if not isinstance(option, Mapping):
        return
    found = dict(zip(child_keys(node), (children(node) or ((), ()))[1], strict=True))
    for key, value in cast("Mapping[Hashable, Any]", option).items():
        if key not in found:
            raise PlanError(
                f"`{name}` of the padding is for {key!r:.100}, but {path} has only "
                f"{list(found)!r:.200}. Use the keys of the elements."
            )
        check_keys(name, value, found[key], f"{path}[{key!r}]")


def child_keys(node: Tree) -> list[Hashable]:
    """Return the keys of the children of a tree: of a dict, or indices, or names of fields.

    >>> child_keys({"a": 1, "b": 2}), child_keys((1, 2))
    (['a', 'b'], [0, 1])
    """
    if isinstance(node, Mapping):
        return list(cast("Mapping[Hashable, Any]", node))
    paths, _ = children(node) or ([], [])
    is_indexed = isinstance(node, list) or type(node) is tuple
    return list(range(len(paths))) if is_indexed else [path.strip(".[]'\"") for path in paths]
