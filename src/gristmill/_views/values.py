"""Single values in one line of text, without what a terminal would interpret."""

from collections.abc import Iterator
from typing import cast

import numpy as np

from gristmill._base.format_size import format_size
from gristmill._base.trees.tree import children
from gristmill._data.statistics.image_sizes import open_image
from gristmill._data.statistics.leaf_statistics import show_numbers
from gristmill._data.statistics.leaves import as_numbers
from gristmill.types import AnyArray, Element

_MAX_LENGTH = 72
_MAX_LISTED_NUMBERS = 8


def leaves_of(value: Element, path: str) -> Iterator[tuple[str, Element]]:
    """Yield the leaves of a value and their paths. Nulls and empty containers are leaves, too.

    Long lists of numbers become arrays.

    >>> list(leaves_of({"a": [1, None]}, "x"))
    [('x["a"][0]', 1), ('x["a"][1]', None)]
    """
    numbers = None
    if type(value) is list and len(cast("list[Element]", value)) > _MAX_LISTED_NUMBERS:
        numbers = as_numbers(cast("list[Element]", value))
    inner = None if numbers is not None else children(value)
    if inner is None or not inner[1]:
        yield path, value if numbers is None else numbers
        return
    for child_path, child in zip(*inner, strict=True):
        yield from leaves_of(child, path + child_path)


def format_value(value: object) -> str:
    """Return a value in one line of limited length. It may contain control characters.

    >>> format_value(b"ab"), format_value(np.arange(3)), format_value(np.ones((2, 2)) / 3)
    ("2 B, b'ab'", 'int64[3] [0, 1, 2]', 'float64[2, 2], 0.3333 to 0.3333')
    """
    if isinstance(value, bytes):
        content = describe_image(value) or shorten(repr(value[:_MAX_LENGTH]))
        return f"{format_size(len(value))}, {content}"
    if isinstance(value, np.ndarray):
        array = cast("AnyArray", value)
        content = ""
        if array.size and array.dtype.kind in "biuf":
            low, high = array.min().item(), array.max().item()
            content = f", {show_numbers(low)} to {show_numbers(high)}"
        if array.ndim == 1 and array.size <= _MAX_LISTED_NUMBERS:
            content = f" {shorten(_show_list(array))}"
        return f"{array.dtype}[{', '.join(map(str, array.shape))}]{content}"
    if isinstance(value, np.generic):
        scalar = cast(np.generic, value)
        return f"{scalar.item()!r} ({scalar.dtype})"
    return shorten(repr(value))


def _show_list(array: AnyArray) -> str:
    if array.dtype.kind not in "biuf":
        return str(array.tolist())
    return f"[{', '.join(map(show_numbers, array.tolist()))}]"


def shorten(string: str, length: int = _MAX_LENGTH) -> str:
    """Return the start of a long string.

    >>> shorten("a long string", 10)
    'a long ...'
    """
    if len(string) <= length:
        return string
    return f"{string[: length - 4].rstrip()} ..."


def describe_image(data: bytes) -> str | None:
    """Return the format and size of an encoded image, or `None` for other bytes."""
    image = open_image(data)
    return None if image is None else f"{image.format} image of {image.width} x {image.height}"
