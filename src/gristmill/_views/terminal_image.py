"""Render an image as text for terminals with colors, two pixels per character."""

from collections.abc import Mapping
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from gristmill._views.pixels import as_rgb, scale_down
from gristmill.errors import PlanError

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
    resized = scale_down(as_rgb(array), width=width)
    num_rows = len(resized)
    pixels = resized.tolist()
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
