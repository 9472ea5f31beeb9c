"""An image as text, two pixels to a character, for terminals that show colours."""

from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import PlanError

_UPPER_HALF = "\N{UPPER HALF BLOCK}"
_RESET = "\x1b[0m"
_NO_BACKGROUND = "\x1b[49m"


def picture(array: NDArray[np.uint8], *, width: int) -> str:
    r"""Give an image as lines of at most `width` characters, its proportions kept.

    The colour of a character is that of a pixel, its background that of the pixel below. Larger
    images are averaged down; smaller ones stay as they are.

    Args:
        array: Shades, of shape (height, width) or (height, width, 1), or colours, of shape
            (height, width, 3), with a fourth channel for how opaque they are before black.
        width: Characters in a line.

    >>> picture(np.array([[0], [255]], np.uint8), width=80)
    '\x1b[38;2;0;0;0m\x1b[48;2;255;255;255m▀\x1b[0m'
    """
    if width < 1:
        raise PlanError(f"`width` must be at least 1, got {width}.")
    colours = _colours(array)
    height, full_width = colours.shape[:2]
    columns = min(width, full_width)
    rows = max(1, round(height * columns / full_width))
    pixels = _average(_average(colours, rows, axis=0), columns, axis=1)
    whole = np.rint(pixels).astype(np.uint8).tolist()
    return "\n".join(
        _line(whole[row], whole[row + 1] if row + 1 < rows else None) for row in range(0, rows, 2)
    )


def can_show(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Tell whether a stream is a terminal that shows such pictures.

    >>> import io
    >>> can_show(io.StringIO(), {"COLORTERM": "truecolor"})
    False
    """
    if not stream.isatty() or environ.get("NO_COLOR"):
        return False
    try:
        _UPPER_HALF.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return True
    return environ.get("TERM", "").endswith(("-256color", "-direct"))


def _colours(array: NDArray[Any]) -> NDArray[np.float32]:
    """Give red, green and blue of each pixel."""
    channels = array.shape[2] if array.ndim == 3 else 1
    if (
        array.dtype != np.uint8
        or array.ndim not in (2, 3)
        or channels not in (1, 3, 4)
        or not array.size
    ):
        raise PlanError(
            "A picture must be of type uint8 and of shape (height, width), or with 1, 3 or 4 "
            f"channels in a third axis, got {array.dtype}{list(array.shape)}."
        )
    pixels = array.reshape(*array.shape[:2], channels).astype(np.float32)
    if channels == 4:
        pixels[:, :, :3] *= pixels[:, :, 3:] / 255
        return pixels[:, :, :3]
    return np.broadcast_to(pixels, (*array.shape[:2], 3))


def _average(pixels: NDArray[np.float32], count: int, *, axis: int) -> NDArray[np.float32]:
    """Make `count` of the pixels along an axis, each the mean of the stretch that it covers."""
    before = pixels.shape[axis]
    if before == count:
        return pixels
    edges = np.arange(count + 1, dtype=np.float64) * before / count
    starts, stops = edges[:-1, None], edges[1:, None]
    place = np.arange(before, dtype=np.float64)
    shares = np.clip(np.minimum(stops, place + 1) - np.maximum(starts, place), 0, None)
    weights = (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)
    return np.moveaxis(np.tensordot(weights, pixels, axes=(1, axis)), 0, axis)


def _line(upper: list[list[int]], lower: list[list[int]] | None) -> str:
    """Write one line; a colour is said only where it changes."""
    parts = [] if lower is not None else [_NO_BACKGROUND]
    front: list[int] | None = None
    back: list[int] | None = None
    for place, colour in enumerate(upper):
        if colour != front:
            front = colour
            parts.append("\x1b[38;2;{};{};{}m".format(*colour))
        if lower is not None and lower[place] != back:
            back = lower[place]
            parts.append("\x1b[48;2;{};{};{}m".format(*back))
        parts.append(_UPPER_HALF)
    return "".join([*parts, _RESET])
