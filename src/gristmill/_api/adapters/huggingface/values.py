"""Converts values that Hugging Face datasets store or return to NumPy."""

import io
from collections.abc import Hashable, Mapping, Sequence
from math import prod
from types import ModuleType
from typing import Any, TypeAlias, TypedDict, cast, final

import numpy as np

from gristmill._api.adapters.tfds.png import PNG_MODES, decode_pngs, png_shape
from gristmill._base.extras import load_extra
from gristmill._base.trees.columns import Allocate, as_numpy_index
from gristmill._data.transforms.image import check_is_no_program
from gristmill.types import AnyArray, AnyDType, Span, SupportsArray

Value: TypeAlias = Any
"""A value of a Hugging Face dataset, or an element made of it: any tree of any type."""

_MAX_PNG_PIXEL_BYTES = 2**16
"""From about this size on, decoding takes longer than opening the file: Pillow decodes those."""

_ORIENTATION = 0x0112
"""Number of the orientation field in EXIF data."""

_IMAGE_COLUMNS = "`from_huggingface`, for a column of images,"
"""What needs Pillow, for the error if it is not installed."""


class StoredImage(TypedDict):
    """An encoded image in an Arrow table."""

    bytes: bytes | None
    path: str | None
    """The path of its file. One of the two may be missing."""


def to_numpy(value: Value) -> Value:
    """Return a value with tensors and Pillow images as arrays, and arrays without axes as scalars.

    >>> to_numpy({"x": np.array(1), "y": ["a", None]})
    {'x': np.int64(1), 'y': ['a', None]}
    """
    if value is None or isinstance(value, str | bytes | int | float | np.generic):
        return cast(Value, value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Hashable, Value]", value)
        return {key: to_numpy(child) for key, child in mapping.items()}
    if isinstance(value, list):
        return [to_numpy(child) for child in cast("list[Value]", value)]
    if isinstance(value, np.ndarray):
        return _convert_array(cast("AnyArray", value))
    detach = getattr(value, "detach", None)
    if detach is not None:  # a PyTorch tensor, which may be on a device
        return _convert_array(detach().cpu().numpy())
    if isinstance(value, SupportsArray):
        return _convert_array(np.asarray(value))
    if getattr(value, "__array_interface__", None) is not None:  # a Pillow image
        return np.array(value)
    return value


def _convert_array(array: AnyArray) -> Value:
    if array.dtype == object and array.ndim == 1:  # strings, dicts, arrays of several shapes
        converted: AnyArray = np.empty(len(array), object)
        converted[:] = [to_numpy(child) for child in array]
        return converted
    return array[()] if not array.ndim else array


@final
class CastArray:
    """An array whose items are cast to another dtype when they are gathered.

    A format makes `int64` of pixels that are stored as `uint8`. If they were cast before they are
    gathered, they would be written twice, at eight times their size, which halves the speed of
    reading.

    >>> pixels = CastArray(np.array([[1, 2], [3, 4]], np.uint8), np.dtype(np.int64))
    >>> pixels.items(range(1, 2))
    [array([3, 4])]
    """

    is_list = False
    has_own_items = False

    def __init__(self, stored: AnyArray, dtype: AnyDType) -> None:
        self._stored = stored
        self.dtype = dtype
        self.shape = stored.shape

    def gather(self, picks: Span, allocate: Allocate, /) -> AnyArray:
        """Return the picked items in one new array, cast."""
        out = allocate((len(picks), *self.shape[1:]), self.dtype)
        out[...] = self._stored[as_numpy_index(picks)]
        return out

    def items(self, picks: Span, /) -> list[AnyArray]:
        """Return the picked items as separate arrays, cast."""
        return list(self._stored[as_numpy_index(picks)].astype(self.dtype))


def load_pillow() -> ModuleType:
    """Import `PIL.Image`, or raise an error that names the extra to install."""
    return load_extra("PIL.Image", extra="huggingface", wanted_by=_IMAGE_COLUMNS)


def decode_images(stored: Sequence[StoredImage | None], mode: str | None) -> list[AnyArray | None]:
    """Decode images as the `Image` feature does.

    Small PNG files of one size are decoded together.

    Args:
        stored: The encoded images. None is decoded to None.
        mode: The Pillow mode to convert to. By default each image keeps its own.
    """
    files = [b"" if image is None or image["bytes"] is None else image["bytes"] for image in stored]
    shape = png_shape(files[0]) if files else None
    is_small = shape is not None and prod(shape) <= _MAX_PNG_PIXEL_BYTES
    if shape is None or not is_small or mode not in (None, PNG_MODES[shape[2]]):
        return [_decode_image(image, mode) for image in stored]
    batch, is_decoded = decode_pngs(files, shape)
    images = batch[..., 0] if shape[2] == 1 else batch
    return [
        pixels if is_done else _decode_image(image, mode)
        for pixels, is_done, image in zip(images, is_decoded.tolist(), stored, strict=True)
    ]


def _decode_image(stored: StoredImage | None, mode: str | None) -> AnyArray | None:
    """Decode an image as the `Image` feature does: rotated by its EXIF data, and in `mode`."""
    if stored is None:
        return None
    pillow, data, path = load_pillow(), stored["bytes"], stored["path"]
    if data is None and path is not None and "://" in path:  # in a store that `datasets` can read
        datasets = load_extra("datasets", extra="huggingface", wanted_by=_IMAGE_COLUMNS)
        return np.array(datasets.Image(mode=mode).decode_example(stored))
    with pillow.open(io.BytesIO(data) if data is not None else path) as opened:
        check_is_no_program(opened, path)
        opened.load()
        image = opened
        if opened.getexif().get(_ORIENTATION) is not None:
            operations = load_extra("PIL.ImageOps", extra="huggingface", wanted_by=_IMAGE_COLUMNS)
            image = operations.exif_transpose(opened)
        if mode is not None and mode != image.mode:
            image = image.convert(mode)
        return np.array(image)
