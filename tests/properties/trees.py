"""Elements as trees of numbers and strings: make new ones of them, and compare them to the bit."""

from collections.abc import Callable
from typing import Any

import numpy as np


def change(function: Callable[[Any], Any], element: Any) -> Any:
    """Return a new element with `function` of each number; strings stay."""
    if isinstance(element, dict):
        return {key: change(function, value) for key, value in element.items()}
    if isinstance(element, list | tuple):
        return type(element)(change(function, item) for item in element)
    return element if _is_text(element) else function(element)


def total(element: Any) -> int:
    """Sum up all that is in an element, to decide something by it."""
    if isinstance(element, dict):
        return sum(map(total, element.values()))
    if isinstance(element, list | tuple):
        return sum(map(total, element))
    return 0 if _is_text(element) else int(np.sum(element))


def items_of(element: Any) -> list[Any]:
    """Take a batch apart; anything else is its only item."""
    sizes = set(_first_axes(element))
    if len(sizes) != 1 or None in sizes:
        return [element]
    (size,) = sizes
    return [_pick(element, number) for number in range(size or 0)]


def stacked(elements: list[Any]) -> Any:
    """Put elements together with `np.stack`, leaf by leaf, with the keys of dicts in order."""
    first = elements[0]
    if any(type(element) is not type(first) for element in elements) and isinstance(
        first, dict | list | tuple
    ):
        raise ValueError("not alike")
    if isinstance(first, dict):
        if any(element.keys() != first.keys() for element in elements):
            raise ValueError("other keys")
        return {key: stacked([element[key] for element in elements]) for key in sorted(first)}
    if isinstance(first, list | tuple):
        if any(len(element) != len(first) for element in elements):
            raise ValueError("other lengths")
        return type(first)(
            stacked([element[place] for element in elements]) for place in range(len(first))
        )
    return np.stack(elements)


def plain(element: Any) -> Any:
    """Return what distinguishes an element from any other: types, dtypes, shapes and bytes."""
    if isinstance(element, dict):
        return {key: plain(value) for key, value in element.items()}
    if isinstance(element, list | tuple):
        return type(element).__name__, [plain(item) for item in element]
    if isinstance(element, np.ndarray | np.generic):
        array = np.asarray(element)
        content = array.tolist() if array.dtype.kind in "biufcO" else array.tobytes()
        return type(element).__name__, str(array.dtype), array.shape, content
    return type(element).__name__, element


def _is_text(leaf: Any) -> bool:
    return np.asarray(leaf).dtype.kind == "U"


def _first_axes(element: Any) -> list[int | None]:
    if isinstance(element, dict):
        return [size for value in element.values() for size in _first_axes(value)]
    if isinstance(element, list | tuple):
        return [size for item in element for size in _first_axes(item)]
    return [element.shape[0] if isinstance(element, np.ndarray) and element.ndim else None]


def _pick(element: Any, number: int) -> Any:
    if isinstance(element, dict):
        return {key: _pick(value, number) for key, value in element.items()}
    if isinstance(element, list | tuple):
        return type(element)(_pick(item, number) for item in element)
    return element[number]
