"""Formats and sizes of the images in a column."""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import final

from gristmill._base.extras import load_extra
from gristmill._data.transforms.image import PillowImage

_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"BM", b"RIFF", b"II*\x00", b"MM\x00*")


@final
@dataclass(frozen=True, kw_only=True)
class ImageSizes:
    """How many image files of each format there are, and how large they are.

    >>> jpeg = ImageSizes(formats={"JPEG": 2}, heights=(10, 30), widths=(20, 20))
    >>> str(jpeg.merge(ImageSizes(formats={"PNG": 1}, heights=(8, 8), widths=(20, 20))))
    'JPEG and PNG images, 20 x 8 to 30'
    """

    formats: Mapping[str, int]
    heights: tuple[int, int]
    """The smallest and the largest height in pixels."""
    widths: tuple[int, int]

    def merge(self, other: "ImageSizes") -> "ImageSizes":
        """Return formats and sizes of the images of both."""
        return ImageSizes(
            formats=dict(Counter(self.formats) + Counter(other.formats)),
            heights=_span(self.heights, other.heights),
            widths=_span(self.widths, other.widths),
        )

    def __str__(self) -> str:
        formats = " and ".join(sorted(self.formats, key=lambda name: (-self.formats[name], name)))
        return f"{formats} images, {_show(self.widths)} x {_show(self.heights)}"


def measure_images(blobs: Iterable[bytes]) -> ImageSizes | None:
    """Return formats and sizes of the image files among some bytes; `None` if there are none.

    Only the header of each file is read. Without Pillow, no image is found.
    """
    total: ImageSizes | None = None
    for blob in blobs:
        image = open_image(blob)
        if image is not None:
            height, width = image.height, image.width
            one = ImageSizes(
                formats={image.format or "image": 1},
                heights=(height, height),
                widths=(width, width),
            )
            total = one if total is None else total.merge(one)
    return total


def open_image(data: bytes) -> PillowImage | None:
    """Return an encoded image, of which only the header was read; `None` for other bytes.

    >>> open_image(b"no image")
    """
    if not data.startswith(_MAGIC):
        return None
    try:
        pillow = load_extra("PIL.Image", extra="image", wanted_by="Showing images")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about large images
            return pillow.open(BytesIO(data))
    except Exception:  # damaged files make Pillow raise anything
        return None


def _span(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    return min(first[0], second[0]), max(first[1], second[1])


def _show(bounds: tuple[int, int]) -> str:
    return str(bounds[0]) if bounds[0] == bounds[1] else f"{bounds[0]} to {bounds[1]}"
