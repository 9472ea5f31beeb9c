"""Find the images among values, and scale them down."""

import contextlib
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._data.statistics.image_sizes import open_image
from gristmill.errors import PlanError
from gristmill.types import AnyArray

_MIN_SIDE = 8
"""Smaller arrays are shown as numbers."""

_MAX_PIXELS = 64 * 10**6
"""Larger images are not decoded: a small file can claim any size."""

_MAX_AVERAGED = 4 * 10**6
"""Of larger images, some pixels are skipped before the others are averaged."""


class Image(NamedTuple):
    """Pixels to show, and what was done to the numbers to make them pixels."""

    pixels: NDArray[np.uint8]
    note: str = ""


def image_of(value: object) -> Image | None:
    """Return the image that a value is: an encoded one, or an array of pixels.

    An array is an image if it has two axes, or a third one with 1, 3 or 4 channels, and sides of at
    least 8. Floating-point pixels are scaled from the range of their values to 0 to 255, unless all
    are between 0 and 1.

    >>> image_of(np.zeros((8, 8), np.uint8)).pixels.shape, image_of(np.zeros((8, 5)))
    ((8, 8), None)
    """
    if isinstance(value, bytes):
        return _decoded(value)
    if not isinstance(value, np.ndarray):
        return None
    array = cast("AnyArray", value)
    has_channels = array.ndim == 3 and array.shape[-1] in (1, 3, 4)
    if not (array.ndim == 2 or has_channels) or min(array.shape[:2]) < _MIN_SIDE:
        return None
    if array.size > _MAX_PIXELS:
        return None
    if array.dtype == np.uint8:
        return Image(array)
    return _scaled(array) if array.dtype.kind == "f" else None


def as_rgb(array: AnyArray) -> NDArray[np.uint8]:
    """Return an image of shape (height, width, 3). Transparent pixels are put over black."""
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
    pixels = array.reshape(*array.shape[:2], channels)
    if channels == 4:
        opaque = pixels[:, :, :3].astype(np.float32) * (pixels[:, :, 3:] / np.float32(255))
        return np.rint(opaque).astype(np.uint8)
    return np.broadcast_to(pixels, (*array.shape[:2], 3))


def scale_down(rgb: NDArray[np.uint8], *, width: int) -> NDArray[np.uint8]:
    """Return an image of at most this width, in its proportions. Pixels are averaged.

    >>> scale_down(np.array([[[0, 0, 0], [9, 90, 200]]], np.uint8), width=1).tolist()
    [[[4, 45, 100]]]
    """
    height, full_width = rgb.shape[:2]
    num_columns = min(width, full_width)
    if num_columns == full_width:
        return rgb
    num_rows = max(1, round(height * num_columns / full_width))
    if height * full_width > _MAX_AVERAGED:  # 32-bit copies of these would take a lot of memory
        step = max(1, full_width // (4 * num_columns))
        rgb = rgb[::step, ::step]
    pixels = rgb.astype(np.float32)
    resized = _average(_average(pixels, num_rows, axis=0), num_columns, axis=1)
    return np.rint(resized).astype(np.uint8)


def _decoded(data: bytes) -> Image | None:
    image = open_image(data)
    if image is None or image.width * image.height > _MAX_PIXELS:
        return None
    with contextlib.suppress(Exception):  # damaged files make Pillow raise anything
        return Image(np.asarray(image.convert("RGB")))
    return None


def _scaled(array: AnyArray) -> Image | None:
    finite = array[np.isfinite(array)]
    if not finite.size:
        return None
    low, high = float(finite.min()), float(finite.max())
    note = ""
    if low < 0 or high > 1:
        note = f"shown with {low:.3g} as black and {high:.3g} as white"
    else:
        low, high = 0.0, 1.0
    shown = np.nan_to_num(array.astype(np.float64), nan=low, posinf=high, neginf=low)
    unit = (shown - low) / max(high - low, 1e-300)
    return Image(np.rint(unit * 255).astype(np.uint8), note)


def _average(pixels: NDArray[np.float32], count: int, *, axis: int) -> NDArray[np.float32]:
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
