"""Decoding of image files to pixels."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.checks import as_kind
from gristmill._base.extras import load_extra
from gristmill._data.transforms.base import Map
from gristmill._data.transforms.jpeg import MAGIC, decode_jpeg, scale_factor
from gristmill.errors import CorruptFileError, FormatError, PlanError, PlanTypeError
from gristmill.types import Element

_MODES = ("L", "RGB", "RGBA")
_DEEP_MODES = ("I", "F")
"""Pillow's modes with more than 8 bits, which it would clip: `I;16` and the like among them."""


class PillowImage(Protocol):
    """What gristmill uses of `PIL.Image.Image`. NumPy converts one to an array."""

    format: str | None
    height: int
    info: Mapping[str, object]
    mode: str
    width: int

    def convert(self, mode: str) -> "PillowImage":
        """Return a copy in another colour mode."""
        ...

    def draft(self, mode: str | None, size: tuple[int, int]) -> object:
        """Decode a JPEG file to a smaller image of at least this width and height."""
        ...


@final
@dataclass(frozen=True)
class DecodeImage(Map):
    """Decodes an image file to a `uint8` array of shape (height, width, channels).

    With mode `"L"` (grey) there is no axis for channels. It reads any format that Pillow reads, and
    ignores the orientation in Exif data. It also accepts the values of Hugging Face's image
    columns, `{"bytes": ..., "path": ...}`. If simplejpeg is installed, JPEG files are decoded with
    it, to the same pixels in about two thirds of the time.

    >>> import io, PIL.Image
    >>> file = io.BytesIO()
    >>> PIL.Image.new("RGB", (4, 2), "white").save(file, "png")
    >>> DecodeImage().map({"image": file.getvalue(), "label": 3})["image"].shape
    (2, 4, 3)

    Args:
        key: Key of the bytes in the element, a dict; `None` if the element is the bytes.
        mode: The colour mode to convert to: `"RGB"`, `"RGBA"` or `"L"`.
        min_size: Minimum height and width that you need. A JPEG file is decoded to a half, a
            quarter or an eighth of its size if that is at least this large, which takes less time
            than to decode and resize it. Other files, and smaller images, keep their size. By
            default nothing is scaled.
    """

    key: str | None = "image"
    mode: str = "RGB"
    min_size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            as_kind("key", self.key, str, remedy="Pass the name of a field, or None.")
        if self.mode not in _MODES:
            raise PlanError(f'`mode` must be "L", "RGB" or "RGBA", got {self.mode!r}.')
        if self.min_size is not None and not _is_size(self.min_size):
            raise PlanError(
                "`min_size` must be a height and a width, two positive integers, got "
                f"{self.min_size!r}."
            )

    def map(self, element: Element) -> Element:
        if self.key is None:
            return self._decode(element)
        if not isinstance(element, Mapping):
            raise PlanTypeError(
                f"`DecodeImage` needs a dict with the key {self.key!r}, got "
                f"{type(element).__name__}. Pass `key=None` if elements are the bytes themselves."
            )
        fields = cast("Mapping[str, Element]", element)
        if self.key not in fields:
            raise PlanError(
                f"`key` must be a key of the element, got {self.key!r}; it has "
                f"{', '.join(map(repr, fields))}."
            )
        return {**fields, self.key: self._decode(fields[self.key])}

    def _decode(self, value: Element) -> NDArray[np.uint8]:
        data, path = value, None
        if isinstance(value, Mapping) and "bytes" in value:
            struct = cast("Mapping[str, Element]", value)
            data, path = struct["bytes"], struct.get("path")
        if not isinstance(data, bytes | bytearray | memoryview):
            raise PlanTypeError(
                f"An image must be the bytes of a file, got {type(data).__name__}. Remove "
                "`DecodeImage` if the images are already decoded."
            )
        encoded = bytes(cast(bytes, data))
        if encoded.startswith(MAGIC):
            pixels = decode_jpeg(encoded, self.mode, self.min_size or (0, 0))
            if pixels is not None:
                return pixels
        pillow = load_extra("PIL.Image", extra="image", wanted_by="`DecodeImage`")
        try:
            with pillow.open(io.BytesIO(encoded)) as image:
                return self._pixels(image, path)
        except pillow.UnidentifiedImageError:
            raise FormatError(
                f"Pillow knows no image format that begins with {encoded[:16]!r}. Filter out "
                "other files, or skip such records with `SkipErrors`.",
                path=path,
            ) from None
        except pillow.DecompressionBombError as error:
            raise FormatError(
                f"The image has too many pixels: {str(error).rstrip('.')}. Raise Pillow's limit "
                "`PIL.Image.MAX_IMAGE_PIXELS` if you trust it, or skip such records with "
                "`SkipErrors`.",
                path=path,
            ) from error
        except (FormatError, MemoryError, Warning):
            raise
        except Exception as error:  # damaged files make Pillow raise anything
            raise CorruptFileError(
                f"The image cannot be decoded: {str(error).rstrip('.')}. Replace the file, or "
                "skip such records with `SkipErrors`.",
                path=path,
            ) from error

    def _pixels(self, image: PillowImage, path: str | None) -> NDArray[np.uint8]:
        if image.format == "JPEG" and self.min_size is not None:
            factor = scale_factor(image.height, image.width, self.min_size)
            if factor > 1:
                image.draft(None, (image.width // factor, image.height // factor))
        if image.mode.startswith(_DEEP_MODES):
            raise FormatError(
                f"The image has more than 8 bits per value (Pillow's mode {image.mode!r}), which "
                "`DecodeImage` would lose. Decode it with your own map.",
                path=path,
            )
        if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
            image = image.convert("RGBA")  # Pillow warns if it converts directly to other modes
        if image.mode != self.mode:
            image = image.convert(self.mode)
        return np.array(image)  # not `asarray`, which returns a read-only array


def _is_size(value: object) -> bool:
    if not isinstance(value, tuple):
        return False
    numbers = cast("tuple[object, ...]", value)
    return len(numbers) == 2 and all(isinstance(n, int) and n >= 1 for n in numbers)
