"""Render an image as text for terminals with colors, two pixels per character."""

from collections.abc import Mapping
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import PlanError
from gristmill.types import AnyArray

_UPPER_HALF = "\N{UPPER HALF BLOCK}"
_RESET = "\x1b[0m"
_NO_BACKGROUND = "\x1b[49m"


def render_image(array: NDArray[np.uint8], *, width: int) -> str:
    r"""Return an image as lines of at most `width` characters, in its original proportions.

    The foreground color of a character is one pixel, its background color the pixel below. Larger
    images are averaged down; smaller images are not enlarged.

    Args:
        array: Grayscale of shape (height, width) or (height, width, 1), or RGB of shape
            (height, width, 3), with a fourth channel for the opacity over black.
        width: The maximum number of characters in a line.

    >>> render_image(np.array([[0], [255]], np.uint8), width=80)
    '\x1b[38;2;0;0;0m\x1b[48;2;255;255;255m▀\x1b[0m'
    """
    if width < 1:
        raise PlanError(f"`width` must be at least 1, got {width}.")
    rgb = _as_rgb(array)
    height, full_width = rgb.shape[:2]
    num_columns = min(width, full_width)
    num_rows = max(1, round(height * num_columns / full_width))
    resized = _downsample(_downsample(rgb, num_rows, axis=0), num_columns, axis=1)
    pixels = np.rint(resized).astype(np.uint8).tolist()
    return "\n".join(
        _render_line(pixels[row], pixels[row + 1] if row + 1 < num_rows else None)
        for row in range(0, num_rows, 2)
    )


def supports_images(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether a stream is a terminal that can show rendered images.

    >>> import io
    >>> supports_images(io.StringIO(), {"COLORTERM": "truecolor"})
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


def _as_rgb(array: AnyArray) -> NDArray[np.float32]:
    channels = array.shape[2] if array.ndim == 3 else 1
    if (
        array.dtype != np.uint8
        or array.ndim not in (2, 3)
        or channels not in (1, 3, 4)
        or not array.size
    ):
        raise PlanError(
            "An image must have dtype uint8 and shape (height, width), or a third axis with 1, 3 "
            f"or 4 channels, got {array.dtype}{list(array.shape)}."
        )
    pixels = array.reshape(*array.shape[:2], channels).astype(np.float32)
    if channels == 4:
        pixels[:, :, :3] *= pixels[:, :, 3:] / 255
        return pixels[:, :, :3]
    return np.broadcast_to(pixels, (*array.shape[:2], 3))


def _downsample(pixels: NDArray[np.float32], count: int, *, axis: int) -> NDArray[np.float32]:
    """Reduce an axis to `count` pixels, each the mean of the interval that it covers."""
    length = pixels.shape[axis]
    if length == count:
        return pixels
    edges = np.arange(count + 1, dtype=np.float64) * length / count
    starts, stops = edges[:-1, None], edges[1:, None]
    positions = np.arange(length, dtype=np.float64)
    overlaps = np.clip(np.minimum(stops, positions + 1) - np.maximum(starts, positions), 0, None)
    weights = (overlaps / overlaps.sum(axis=1, keepdims=True)).astype(np.float32)
    return np.moveaxis(np.tensordot(weights, pixels, axes=(1, axis)), 0, axis)


def _render_line(upper: list[list[int]], lower: list[list[int]] | None) -> str:
    """Return one line of characters. Escape codes are written only where a color changes."""
    output = [] if lower is not None else [_NO_BACKGROUND]
    foreground: list[int] | None = None
    background: list[int] | None = None
    for column, color in enumerate(upper):
        if color != foreground:
            foreground = color
            output.append("\x1b[38;2;{};{};{}m".format(*color))
        if lower is not None and lower[column] != background:
            background = lower[column]
            output.append("\x1b[48;2;{};{};{}m".format(*background))
        output.append(_UPPER_HALF)
    return "".join([*output, _RESET])
