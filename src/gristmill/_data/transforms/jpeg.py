"""Decoding of JPEG files with libjpeg-turbo, through simplejpeg, if that is installed.

It takes about two thirds of the time that Pillow takes. Pillow uses the same library, so that the
pixels are equal, bit for bit, in the cases that are decoded here; `decode_jpeg` returns `None` in
all others.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

MAGIC = b"\xff\xd8\xff"
"""What a JPEG file begins with."""

MAX_PIXELS = 50_000_000
"""Larger images are left to Pillow, which warns of those that may be attacks."""

_CONVERSIONS = {("YCbCr", "RGB"): "RGB", ("Gray", "RGB"): "RGB", ("Gray", "L"): "GRAY"}
"""The colours of a file, and the mode: what to ask for. Pillow converts others in its own way."""

_Decoder: TypeAlias = Callable[[bytes, str, tuple[int, int]], NDArray[np.uint8] | None]


def decode_jpeg(
    data: bytes, mode: str, min_size: tuple[int, int] = (0, 0)
) -> NDArray[np.uint8] | None:
    """Return the pixels of a JPEG file, as Pillow would.

    Args:
        data: The file.
        mode: Pillow's name of the colour mode.
        min_size: Minimum height and width; the image is scaled down while it is decoded, by the
            largest factor of 1, 2, 4 or 8 that keeps it at least this large. (0, 0): not scaled.

    Returns:
        An array of shape (height, width, channels), or (height, width) for mode `"L"`. `None` if
        Pillow has to decode the file: it is damaged, very large, in other colours, or simplejpeg is
        not installed.
    """
    decode = _decoder()
    return None if decode is None else decode(data, mode, min_size)


def scale_factor(height: int, width: int, min_size: tuple[int, int]) -> int:
    """Return the largest of 1, 2, 4 and 8 by which an image may be scaled down.

    >>> scale_factor(400, 500, (100, 100)), scale_factor(400, 500, (0, 0))
    (4, 1)
    """
    if not any(min_size):
        return 1
    fitting = [
        factor
        for factor in (8, 4, 2)
        if -(-height // factor) >= min_size[0] and -(-width // factor) >= min_size[1]
    ]
    return fitting[0] if fitting else 1


@functools.cache
def _decoder() -> _Decoder | None:
    try:
        simplejpeg: Any = importlib.import_module("simplejpeg")
    except ImportError:
        return None

    def decode(data: bytes, mode: str, min_size: tuple[int, int]) -> NDArray[np.uint8] | None:
        try:
            height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
            target = _CONVERSIONS.get((colors, mode))
            if target is None or height * width > MAX_PIXELS:
                return None
            factor = scale_factor(height, width, min_size)
            if factor == 1:
                pixels = simplejpeg.decode_jpeg(data, colorspace=target)
            else:  # libjpeg also scales by other factors, which Pillow does not use
                pixels = simplejpeg.decode_jpeg(
                    data,
                    colorspace=target,
                    min_height=-(-height // factor),
                    min_width=-(-width // factor),
                    min_factor=factor,
                )
        except ValueError:  # damaged: what Pillow makes of it counts
            return None
        decoded = cast("NDArray[np.uint8]", pixels)
        return decoded[:, :, 0] if mode == "L" else decoded

    return decode
