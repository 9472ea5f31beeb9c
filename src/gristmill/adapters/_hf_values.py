"""What a value that Hugging Face gives, or stores, is in NumPy."""

import io
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._extras import load_extra
from gristmill.adapters._png import PNG_MODES, decode_pngs, png_shape
from gristmill.types import SupportsArray

_SMALL_BYTES = 2**16
"""Decoding takes longer than opening from about here on: larger ones are left to Pillow."""

_ME = "`from_huggingface`, for a column of pictures,"


def to_numpy(value: Any) -> Any:
    """Give a value with its tensors and pictures as arrays, and arrays without axes as scalars.

    >>> to_numpy({"x": np.array(1), "y": ["a", None]})
    {'x': np.int64(1), 'y': ['a', None]}
    """
    if value is None or isinstance(value, str | bytes | int | float | np.generic):
        return cast(Any, value)
    if isinstance(value, Mapping):
        return {key: to_numpy(one) for key, one in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list):
        return [to_numpy(one) for one in cast("list[Any]", value)]
    if isinstance(value, np.ndarray):
        return _checked(cast("NDArray[Any]", value))
    detach: Any = getattr(value, "detach", None)
    if detach is not None:  # a tensor of PyTorch, which may be on a device
        return _checked(detach().cpu().numpy())
    if isinstance(value, SupportsArray):
        return _checked(np.asarray(value))
    if getattr(value, "__array_interface__", None) is not None:  # a picture of Pillow
        return np.array(value)
    return value


def _checked(array: NDArray[Any]) -> Any:
    if array.dtype == object and array.ndim == 1:  # texts, dicts, arrays of several shapes
        made: NDArray[Any] = np.empty(len(array), object)
        made[:] = [to_numpy(one) for one in array]
        return made
    return array[()] if not array.ndim else array


def load_pillow() -> Any:
    """Import Pillow, or say how to install it."""
    return load_extra("PIL.Image", extra="huggingface", wanted_by=_ME)


def decode_pictures(stored: Sequence[Any], mode: str | None) -> list[NDArray[Any] | None]:
    """Decode pictures as HF's `Image` does: small PNG files of one size together."""
    files = [b"" if one is None or one["bytes"] is None else one["bytes"] for one in stored]
    shape = png_shape(files[0]) if files else None
    is_small = shape is not None and prod(shape) <= _SMALL_BYTES
    if shape is None or not is_small or mode not in (None, PNG_MODES[shape[2]]):
        return [decode_picture(one, mode) for one in stored]
    together, is_done = decode_pngs(files, shape)
    pictures = together[..., 0] if shape[2] == 1 else together
    return [
        picture if is_one else decode_picture(one, mode)
        for picture, is_one, one in zip(pictures, is_done.tolist(), stored, strict=True)
    ]


def decode_picture(stored: Any, mode: str | None) -> NDArray[Any] | None:
    """Decode a picture as HF's `Image` does: turned as its EXIF data say, and in `mode`.

    Args:
        stored: Its `bytes`, or the `path` of its file.
        mode: One of Pillow's; by default that of the picture.
    """
    if stored is None:
        return None
    pillow, data, path = load_pillow(), stored["bytes"], stored["path"]
    if data is None and path is not None and "://" in path:  # in a store that HF knows to read
        datasets = load_extra("datasets", extra="huggingface", wanted_by=_ME)
        return np.array(datasets.Image(mode=mode).decode_example(stored))
    with pillow.open(io.BytesIO(data) if data is not None else path) as opened:
        opened.load()
        picture = opened
        if opened.getexif().get(_ORIENTATION) is not None:
            operations = load_extra("PIL.ImageOps", extra="huggingface", wanted_by=_ME)
            picture = operations.exif_transpose(opened)
        if mode is not None and mode != picture.mode:
            picture = picture.convert(mode)
        return np.array(picture)


_ORIENTATION = 0x0112
"""The number of that field in EXIF data."""
