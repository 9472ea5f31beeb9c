"""Decoding of JPEG files with libjpeg-turbo, through simplejpeg, if that is installed.

It takes less time than Pillow. Pillow uses the same library, so that the pixels are equal, bit for
bit, in the cases that are decoded here; `decode_jpeg` returns `None` in all others.

A crop is decoded only down to its last row. No suitable package on PyPI offers that (libjpeg-turbo
does), so the height in a copy of the header is reduced, and the decoder stops there. Measured for
crops of 224x224 from files of 500x400, CPU time per image: Pillow 1.26 ms, OpenCV 1.13, simplejpeg
1.06, simplejpeg down to the last row 0.93. benchmarks/README.md compares more decoders.
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

Box: TypeAlias = tuple[int, int, int, int]
"""Top, left, height and width of a crop."""

Crop: TypeAlias = Callable[[int, int], Box]
"""Chooses a crop of an image of some height and width."""

_Decoder: TypeAlias = Callable[[bytes, str, tuple[int, int], Crop | None], NDArray[np.uint8] | None]

_END = b"\xff\xd9"


def decode_jpeg(
    data: bytes, mode: str, min_size: tuple[int, int] = (0, 0), crop: Crop | None = None
) -> NDArray[np.uint8] | None:
    """Return the pixels of a JPEG file, as Pillow would.

    Args:
        data: The file.
        mode: Pillow's name of the colour mode.
        min_size: Minimum height and width; the image is scaled down while it is decoded, by the
            largest factor of 1, 2, 4 or 8 that keeps it at least this large. (0, 0): not scaled.
        crop: Chooses the crop to return, from the height and width after scaling.

    Returns:
        An array of shape (height, width, channels), or (height, width) for mode `"L"`. `None` if
        Pillow has to decode the file: it is damaged, very large, in other colours, or simplejpeg is
        not installed.
    """
    decode = _decoder()
    return None if decode is None else decode(data, mode, min_size, crop)


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


def crop_pixels(pixels: NDArray[np.uint8], box: Box) -> NDArray[np.uint8]:
    """Return a copy of a crop, so that the whole image can be freed."""
    top, left, height, width = box
    return pixels[top : top + height, left : left + width].copy()


def with_height(data: bytes, bottom: int) -> bytes | None:
    """Return a file that ends at row `bottom` or a little below, or `None` if it cannot be cut.

    The rows above `bottom` are decoded to the same pixels: colours are interpolated between rows,
    so that one more row of the blocks that are coded together is kept.

    Only a sequential file with one scan can be cut, because others continue with the same rows.
    The file must be complete: damage can no longer be distinguished from the rows that are cut off.
    """
    if not data.endswith(_END):
        return None
    frame = _find(data, 2, (0xC0, 0xC1))
    scan = -1 if frame < 0 else _find(data, frame, (0xDA,))
    if scan < 0 or data[scan + 4] != data[frame + 9]:  # the number of components
        return None
    components = data[frame + 10 : frame + 10 + 3 * data[frame + 9]]
    rows = 8 * max(factors & 15 for factors in components[1::3])
    height = (-(-bottom // rows) + 1) * rows
    if height >= int.from_bytes(data[frame + 5 : frame + 7], "big"):
        return None
    rest = memoryview(data)[frame + 7 :]
    return b"".join((data[: frame + 5], height.to_bytes(2, "big"), rest))


def _find(data: bytes, start: int, markers: tuple[int, ...]) -> int:
    """Return the offset of a segment, or -1 if a frame or scan of another kind comes before it."""
    while data[start : start + 1] == b"\xff" and start + 9 < len(data):
        marker = data[start + 1]
        if marker in markers:
            return start
        is_frame = 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)
        if marker == 0xDA or (is_frame and 0xDA not in markers):
            return -1
        start += 2 + int.from_bytes(data[start + 2 : start + 4], "big")
    return -1


@functools.cache
def _decoder() -> _Decoder | None:
    try:
        simplejpeg: Any = importlib.import_module("simplejpeg")
    except ImportError:
        return None

    def decode(
        data: bytes, mode: str, min_size: tuple[int, int], crop: Crop | None
    ) -> NDArray[np.uint8] | None:
        try:
            height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
            target = _CONVERSIONS.get((colors, mode))
            if target is None or height * width > MAX_PIXELS:
                return None
            factor = scale_factor(height, width, min_size)
        except ValueError:  # damaged: what Pillow makes of it counts
            return None
        # Outside of `try`, because `crop` may be the user's.
        box = None if crop is None else crop(-(-height // factor), -(-width // factor))
        try:
            cut = None if box is None or factor > 1 else with_height(data, box[0] + box[2])
            if cut is not None:
                # Not strict, because the decoder warns of the data after the last row.
                pixels = simplejpeg.decode_jpeg(cut, colorspace=target, strict=False)
            elif factor == 1:
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
        decoded = decoded[:, :, 0] if mode == "L" else decoded
        return decoded if box is None else crop_pixels(decoded, box)

    return decode
