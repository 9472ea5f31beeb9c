"""Elements of a pipeline as they are shown: images, decoded tokens, packed rows, and values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast, final

import numpy as np

from gristmill._base.trees.tree import leaves_with_paths, map_leaves
from gristmill._data.writers.records import as_columns
from gristmill._metrics.pages.html_table import escape
from gristmill._printable import printable
from gristmill._views.packed_rows import POSITIONS, SEGMENT_IDS, PackedRow, packed_rows
from gristmill._views.pixels import Image, image_of
from gristmill._views.png import image_tag
from gristmill._views.terminal_image import render_image
from gristmill._views.values import format_value, leaves_of, shorten
from gristmill.types import AnyArray, Element, Leaf, SupportsArray, Tree

Decode: TypeAlias = Callable[[Any], object]

DecodeArgument: TypeAlias = "Decode | Mapping[str, Decode] | None"
"""A function of lists of tokens, or functions of values by the names of leaves."""

_IMAGE_WIDTH = 224
_TERMINAL_WIDTH = 32
_MAX_DECODED = 600


@final
@dataclass(frozen=True, kw_only=True)
class ElementView:
    """One element, and how its leaves are decoded."""

    title: str
    element: Element
    decode: DecodeArgument

    def html(self) -> str:
        """Return a card. Everything in it is escaped."""
        rows = packed_rows(self.element)
        leaves = list(self._leaves(rows))
        images = "".join(
            image_tag(image.pixels, width=_IMAGE_WIDTH)
            for _, _, image in leaves
            if image is not None
        )
        bars = "".join(row.html(self._decoder(row.name)) for row in rows)
        values = "".join(
            f"<dt>{escape(path)}</dt><dd>{escape(text)}</dd>" for path, text, _ in leaves
        )
        kind = "card wide" if rows else "card"
        title = f"<h3>{escape(self.title)}</h3>"
        return f'<div class="{kind}">{title}{images}{bars}<dl>{values}</dl></div>'

    def lines(self, *, shows_images: bool) -> Iterator[str]:
        """Yield the element as lines of text, without what a terminal would interpret.

        Args:
            shows_images: Whether the lines may have colors, for images.
        """
        rows = packed_rows(self.element)
        yield self.title
        for row in rows:
            yield printable(f"  {row.name}: {row.summary}")
            yield f"  [{row.bar()}]"
            decode = self._decoder(row.name)
            for number, text in row.decoded(decode) if decode is not None else ():
                yield printable(f"  {number}: {text}")
        for path, text, image in self._leaves(rows):
            yield printable(f"  {path}: {text}")
            if image is not None and shows_images:
                lines = render_image(image.pixels, width=_TERMINAL_WIDTH).splitlines()
                yield from (f"  {line}" for line in lines)

    def _leaves(self, rows: Sequence[PackedRow]) -> Iterator[tuple[str, str, Image | None]]:
        """Yield path, text and image of each leaf that is not part of a packed row."""
        packed = {row.name + suffix for row in rows for suffix in ("", SEGMENT_IDS, POSITIONS)}
        for name, value in as_columns(self.element).items():
            if name in packed:
                continue
            for path, leaf in leaves_of(value, name):
                image = image_of(leaf)
                note = f"; {image.note}" if image is not None and image.note else ""
                yield path, self._text(path, leaf) + note, image

    def _text(self, path: str, leaf: Leaf) -> str:
        decode = self._decoder(path)
        if decode is not None and isinstance(self.decode, Mapping):
            return shorten(str(decode(_as_plain(leaf))), _MAX_DECODED)
        if decode is not None and _are_tokens(leaf):
            tokens: list[int] = cast("AnyArray", leaf).tolist()
            return f"{len(tokens)} tokens: {shorten(str(decode(tokens)), _MAX_DECODED)}"
        return format_value(leaf)

    def _decoder(self, path: str) -> Decode | None:
        """Return the function that decodes a leaf, with the name of the leaf in its errors."""
        decode = self.decode
        if isinstance(decode, Mapping):
            decode = cast("Mapping[str, Decode]", decode).get(path)
        if decode is None:
            return None

        def decode_and_name(value: Any) -> object:
            try:
                return decode(value)
            except Exception as error:
                error.add_note(f"In `decode`, for the leaf {printable(path)!r}.")
                raise

        return decode_and_name


def rows_of(batch: Element) -> list[Element]:
    """Return the elements that a batch was made of: its rows along the first axis.

    >>> rows_of({"x": np.array([1, 2]), "y": ["a", "b"], "z": 5})
    [{'x': 1, 'y': ['a', 'b'], 'z': 5}, {'x': 2, 'y': ['a', 'b'], 'z': 5}]
    """
    arrays = [
        cast("AnyArray", leaf)
        for _, leaf in leaves_with_paths(batch)
        if isinstance(leaf, np.ndarray)
    ]
    counts = {len(array) for array in arrays if array.ndim}
    if len(counts) != 1:  # not stacked: a batch of its own kind is shown as it is
        return [batch]
    (count,) = counts
    return [map_leaves(lambda leaf: _row(leaf, number), batch) for number in range(count)]  # noqa: B023


def as_numpy(element: Tree) -> Tree:
    """Return an element with arrays of NumPy instead of those of JAX and of others."""
    return map_leaves(_as_numpy, element)


def _as_numpy(leaf: Leaf) -> Leaf:
    value: object = leaf
    if isinstance(value, np.ndarray | np.generic) or not isinstance(value, SupportsArray):
        return cast(object, value)
    try:
        return cast(object, np.asarray(value))
    except Exception:  # of another library
        return value


def _row(leaf: Leaf, number: int) -> Leaf:
    if not isinstance(leaf, np.ndarray) or not cast("AnyArray", leaf).ndim:
        return cast(object, leaf)
    return _as_plain(cast("AnyArray", leaf)[number])


def _as_plain(leaf: Leaf) -> Leaf:
    """Return a number of NumPy as one of Python."""
    value: object = leaf
    return cast("np.generic", value).item() if isinstance(value, np.generic) else value


def _are_tokens(leaf: Leaf) -> bool:
    if not isinstance(leaf, np.ndarray):
        return False
    array = cast("AnyArray", leaf)
    return array.ndim == 1 and array.dtype.kind in "iu"
