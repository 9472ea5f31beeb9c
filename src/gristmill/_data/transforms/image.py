"""Decoding of image files to pixels."""

import functools
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.extras import load_extra
from gristmill._data.transforms.base import Map, RandomMap
from gristmill._data.transforms.encoded import bytes_of, check_key, decode_at_key
from gristmill._data.transforms.jpeg import MAGIC, Box, Crop, decode_jpeg, scale_factor
from gristmill.errors import CorruptFileError, FormatError, PlanError
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

    def crop(self, box: tuple[int, int, int, int]) -> "PillowImage":
        """Return a copy of a crop from left, top to right, bottom."""
        ...

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
    it, to the same pixels in less time.

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

    Raises:
        PlanError: If `mode` or `min_size` is not a possible one.
        PlanTypeError: If `key` is not a string.
        FormatError: When an image is decoded, if its format is unknown or it has too many pixels.
        CorruptFileError: When an image is decoded, if it is truncated or damaged.
    """

    key: str | None = "image"
    mode: str = "RGB"
    min_size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        _check_key_and_mode(self.key, self.mode)
        if self.min_size is not None and not _is_size(self.min_size):
            raise PlanError(
                "`min_size` must be a height and a width, two positive integers, got "
                f"{self.min_size!r}."
            )

    def map(self, element: Element) -> Element:
        return decode_at_key(element, self.key, "DecodeImage", self.decode)

    def decode(self, value: Element, crop: Crop | None = None) -> NDArray[np.uint8]:
        """Return the pixels of an image file, or a crop of them.

        A crop takes less time than the whole image: it is cut out before the colours are converted,
        and with simplejpeg, most JPEG files are decoded only down to the last row of the crop. The
        pixels are those of the whole image. Damage below the crop may stay unnoticed.

        >>> import io, PIL.Image
        >>> file = io.BytesIO()
        >>> PIL.Image.new("RGB", (8, 6)).save(file, "jpeg")
        >>> lower_half = lambda height, width: (height // 2, 0, height // 2, width)
        >>> DecodeImage().decode(file.getvalue(), lower_half).shape
        (3, 8, 3)

        Args:
            value: The bytes of the file, or a value of Hugging Face's image columns.
            crop: A function from height and width of the image to a crop within it: top, left,
                height and width.

        Raises:
            FormatError: If the format is unknown, or the image has too many pixels.
            CorruptFileError: If the image is truncated or damaged.
        """
        encoded, path = bytes_of(value, "An image", "DecodeImage")
        checked = None if crop is None else _checked(crop)
        if encoded.startswith(MAGIC):
            pixels = decode_jpeg(encoded, self.mode, self.min_size or (0, 0), checked)
            if pixels is not None:
                return pixels
        pillow = load_extra("PIL.Image", extra="image", wanted_by="`DecodeImage`")
        try:
            with pillow.open(io.BytesIO(encoded)) as image:
                return self._pixels(image, path, checked)
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
        except (FormatError, MemoryError, PlanError, Warning):
            raise
        except Exception as error:  # damaged files make Pillow raise anything
            raise CorruptFileError(
                f"The image cannot be decoded: {str(error).rstrip('.')}. Replace the file, or "
                "skip such records with `SkipErrors`.",
                path=path,
            ) from error

    def _pixels(self, image: PillowImage, path: str | None, crop: Crop | None) -> NDArray[np.uint8]:
        check_is_no_program(image, path)
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
        if crop is not None:
            top, left, height, width = crop(image.height, image.width)
            image = image.crop((left, top, left + width, top + height))
        if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
            image = image.convert("RGBA")  # Pillow warns if it converts directly to other modes
        if image.mode != self.mode:
            image = image.convert(self.mode)
        return np.array(image)  # not `asarray`, which returns a read-only array


@final
@dataclass(frozen=True)
class DecodeRandomCrop(RandomMap):
    """Decodes a random crop of an image file to a `uint8` array of shape `(*size, channels)`.

    The crop has the same chance at every position within the image, and depends on the seed and the
    position of the record only. It takes less time than to decode the image and then crop it; see
    `DecodeImage.decode`, which also takes crops of other kinds.

    >>> import io, PIL.Image
    >>> file = io.BytesIO()
    >>> PIL.Image.new("RGB", (8, 6)).save(file, "jpeg")
    >>> crop = DecodeRandomCrop(size=(4, 4), key=None)
    >>> crop.random_map(file.getvalue(), np.random.default_rng(0)).shape
    (4, 4, 3)

    Args:
        size: Height and width of the crop. An image must be at least as large.
        key: Key of the bytes in the element, a dict; `None` if the element is the bytes.
        mode: The colour mode to convert to: `"RGB"`, `"RGBA"` or `"L"`.

    Raises:
        PlanError: If `mode` or `size` is not a possible one; or, when an image is decoded, if it is
            smaller than the crop.
        PlanTypeError: If `key` is not a string.
        FormatError: When an image is decoded, if its format is unknown.
        CorruptFileError: When an image is decoded, if it is truncated or damaged.
    """

    size: tuple[int, int]
    key: str | None = "image"
    mode: str = "RGB"

    def __post_init__(self) -> None:
        _check_key_and_mode(self.key, self.mode)
        if not _is_size(self.size):
            raise PlanError(
                f"`size` must be a height and a width, two positive integers, got {self.size!r}."
            )

    def random_map(self, element: Element, rng: np.random.Generator) -> Element:
        decoder = DecodeImage(key=None, mode=self.mode)

        def crop(height: int, width: int) -> Box:
            if height < self.size[0] or width < self.size[1]:
                raise PlanError(
                    f"An image must be at least as large as the crop, {self.size}, got "
                    f"{(height, width)}. Use a smaller `size`, filter out small images, or skip "
                    "them with `SkipErrors`."
                )
            top = int(rng.integers(height - self.size[0] + 1))
            return top, int(rng.integers(width - self.size[1] + 1)), *self.size

        chosen = functools.cache(crop)  # drawn once, even if Pillow has to decode the file
        return decode_at_key(
            element, self.key, "DecodeRandomCrop", lambda value: decoder.decode(value, chosen)
        )


def _checked(crop: Crop) -> Crop:
    """Return a function that refuses crops that are not within the image."""

    def choose(height: int, width: int) -> Box:
        box = crop(height, width)
        top, left, rows, columns = box
        if not (0 <= top < top + rows <= height and 0 <= left < left + columns <= width):
            raise PlanError(
                f"A crop must be within the image, of size {(height, width)}, got top, left, "
                f"height and width {tuple(box)}. Choose it from the height and width that `crop` "
                "is called with."
            )
        return box

    return choose


def _check_key_and_mode(key: object, mode: object) -> None:
    check_key(key)
    if mode not in _MODES:
        raise PlanError(f'`mode` must be "L", "RGB" or "RGBA", got {mode!r}.')


def _is_size(value: object) -> bool:
    if not isinstance(value, tuple):
        return False
    numbers = cast("tuple[object, ...]", value)
    return len(numbers) == 2 and all(isinstance(n, int) and n >= 1 for n in numbers)


def check_is_no_program(image: PillowImage, path: str | None) -> None:
    """Raise unless the content of an image is pixels. Pillow passes EPS files to Ghostscript.

    Raises:
        FormatError: It is code in PostScript.
    """
    if image.format == "EPS":
        raise FormatError(
            "The image is an EPS file: a program, which Ghostscript would run. Convert such files "
            "to another format, or skip such records with `SkipErrors`.",
            path=path,
        )
