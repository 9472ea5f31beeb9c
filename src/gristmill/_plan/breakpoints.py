"""Find the functions of a plan that call a debugger."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.hints import all_nodes

_CALLS = frozenset({"breakpoint", "set_trace"})
_METHODS = ("map", "random_map", "map_with_index", "flat_map", "filter", "__getitem__", "__call__")


def calls_breakpoint(plan: Node) -> bool:
    """Return whether a function of a plan calls `breakpoint()`, or `set_trace()` of a debugger.

    Functions that these functions call are not searched.

    >>> from gristmill import MapDataset
    >>> plan = MapDataset.range(3).map(lambda x: breakpoint() or x)._plan_node
    >>> calls_breakpoint(plan), calls_breakpoint(plan.parents[0])
    (True, False)
    """
    return any(
        _CALLS.intersection(code.co_names)
        for node in all_nodes(plan)
        for field in fields(node)
        for code in _codes(getattr(node, field.name))
    )


def _codes(value: object) -> Iterator[Any]:
    """Yield the code of a function, or of the methods that a step or a source may have."""
    holders = [value, *(getattr(type(value), name, None) for name in _METHODS)]
    for holder in holders:
        function = getattr(holder, "__func__", holder)
        code: Any = getattr(function, "__code__", None)
        if code is not None and hasattr(code, "co_names"):
            yield code
