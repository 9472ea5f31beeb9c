"""From the bytes of an image file to its pixels."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._check import as_kind
from gristmill._extras import load_extra
from gristmill.errors import CorruptFileError, FormatError, PlanError, PlanTypeError
from gristmill.transforms._base import Map
from gristmill.types import Element

_MODES = ("L", "RGB", "RGBA")
_DEEP_MODES = ("I", "F")
"""Pillow's modes with more than 8 bits, which it would clip: `I;16` and the like among them."""


@final
@dataclass(frozen=True)
class DecodeImage(Map):
    """Pixels in place of the bytes of an image file: a `uint8` array, height by width by channels.

    With mode `"L"`, which is grey, there is no axis for channels. Any format that Pillow reads;
    the orientation in Exif data is not applied. Values as in Hugging Face's image columns,
    `{"bytes": ..., "path": ...}`, are taken, too.

    >>> import io, PIL.Image
    >>> file = io.BytesIO()
    >>> PIL.Image.new("RGB", (4, 2), "white").save(file, "png")
    >>> DecodeImage().map({"image": file.getvalue(), "label": 3})["image"].shape
    (2, 4, 3)

    Args:
        key: Where in the element, a dict, the bytes are; `None` if they are the element itself.
        mode: The colours to convert to: `"RGB"`, `"RGBA"` or `"L"`.
    """

    key: str | None = "image"
    mode: str = "RGB"

    def __post_init__(self) -> None:
        if self.key is not None:
            as_kind("key", self.key, str, remedy="Pass the name of a field, or None.")
        if self.mode not in _MODES:
            raise PlanError(f'`mode` must be "L", "RGB" or "RGBA", got {self.mode!r}.')

    def map(self, element: Element) -> Element:
        if self.key is None:
            return self._decode(element)
        if not isinstance(element, Mapping):
            raise PlanTypeError(
                f"`DecodeImage` must get a dict with the key {self.key!r}, got "
                f"{type(element).__name__}. Pass `key=None` if elements are the bytes themselves."
            )
        fields = cast("Mapping[str, Any]", element)
        if self.key not in fields:
            raise PlanError(
                f"`key` must be one of the element's, got {self.key!r}, and it has "
                f"{', '.join(map(repr, fields))}."
            )
        return {**fields, self.key: self._decode(fields[self.key])}

    def _decode(self, value: Any) -> NDArray[np.uint8]:
        data, path = value, None
        if isinstance(value, Mapping) and "bytes" in value:
            struct = cast("Mapping[str, Any]", value)
            data, path = struct["bytes"], struct.get("path")
        if not isinstance(data, bytes | bytearray | memoryview):
            raise PlanTypeError(
                f"An image must be the bytes of a file, got {type(data).__name__}. Leave "
                "`DecodeImage` out if it is decoded already."
            )
        encoded = bytes(cast(Any, data))
        pillow = load_extra("PIL.Image", extra="image", wanted_by="`DecodeImage`")
        try:
            with pillow.open(io.BytesIO(encoded)) as image:
                return self._pixels(image, path)
        except pillow.UnidentifiedImageError:
            raise FormatError(
                f"Pillow knows no image file that begins with {encoded[:16]!r}. Filter out "
                "what is no image, or leave such records out with `SkipErrors`.",
                path=path,
            ) from None
        except (FormatError, pillow.DecompressionBombError, MemoryError, Warning):
            raise
        except Exception as error:  # damaged files make Pillow raise anything
            raise CorruptFileError(
                f"The image cannot be decoded: {str(error).rstrip('.')}. Write the file anew, or "
                "leave such records out with `SkipErrors`.",
                path=path,
            ) from error

    def _pixels(self, image: Any, path: str | None) -> NDArray[np.uint8]:
        if image.mode.startswith(_DEEP_MODES):
            raise FormatError(
                f"The image has more than 8 bits for each value (Pillow's mode {image.mode!r}), "
                "which `DecodeImage` would cut off. Decode it with a map of your own.",
                path=path,
            )
        if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
            image = image.convert("RGBA")  # straight to other modes, Pillow warns
        if image.mode != self.mode:
            image = image.convert(self.mode)
        return np.array(image)  # not `asarray`, which gives an array that nobody may write to
