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

_Decoder: TypeAlias = Callable[[bytes, str], NDArray[np.uint8] | None]


def decode_jpeg(data: bytes, mode: str) -> NDArray[np.uint8] | None:
    """Return the pixels of a JPEG file, as Pillow would.

    Args:
        data: The file.
        mode: Pillow's name of the colour mode.

    Returns:
        An array of shape (height, width, channels), or (height, width) for mode `"L"`. `None` if
        Pillow has to decode the file: it is damaged, very large, in other colours, or simplejpeg is
        not installed.
    """
    decode = _decoder()
    return None if decode is None else decode(data, mode)


@functools.cache
def _decoder() -> _Decoder | None:
    try:
        simplejpeg: Any = importlib.import_module("simplejpeg")
    except ImportError:
        return None

    def decode(data: bytes, mode: str) -> NDArray[np.uint8] | None:
        try:
            height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
            target = _CONVERSIONS.get((colors, mode))
            if target is None or height * width > MAX_PIXELS:
                return None
            pixels = simplejpeg.decode_jpeg(data, colorspace=target)
        except ValueError:  # damaged: what Pillow makes of it counts
            return None
        decoded = cast("NDArray[np.uint8]", pixels)
        return decoded[:, :, 0] if mode == "L" else decoded

    return decode
