"""The work of the row `jpeg` with Pillow, and the check of its results."""

import io
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks._check import ContentError
from benchmarks._jpeg import CROP, HEIGHT, WIDTH, JpegSource

Pixels = NDArray[np.uint8]
Sample = tuple[Pixels, int, NDArray[np.int64]]
"""A crop, the number of its record, and (top, left, flip), so that it can be checked."""
Batch = tuple[Pixels, NDArray[Any], NDArray[Any]]


def make_jpeg(number: int) -> bytes:
    """Return an image that compresses like a photograph: soft shapes and some noise."""
    rng = np.random.default_rng(number)
    shapes = rng.integers(0, 256, (rng.integers(4, 40), rng.integers(5, 50), 3), dtype=np.uint8)
    soft = Image.fromarray(shapes).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    grain = rng.normal(0, rng.uniform(10, 20), (HEIGHT, WIDTH, 1))  # the same for all colours
    pixels = np.clip(np.asarray(soft) + grain, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


def decode_crop_flip(jpeg: bytes, top: int, left: int, flip: int) -> Pixels:
    """Decode an image as torchvision does: only the crop becomes an array."""
    image = Image.open(io.BytesIO(jpeg)).convert("RGB")
    image = image.crop((left, top, left + CROP, top + CROP))
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image)


def augment(record: tuple[bytes, int], rng: np.random.Generator) -> Sample:
    """Return a record with a random crop and flip."""
    jpeg, label = record
    top, left = int(rng.integers(HEIGHT - CROP + 1)), int(rng.integers(WIDTH - CROP + 1))
    flip = int(rng.integers(2))
    return decode_crop_flip(jpeg, top, left, flip), label, np.array([top, left, flip])


def stack(samples: Iterable[Sample]) -> Batch:
    """Return the samples as a batch."""
    images, labels, crops = zip(*samples, strict=True)
    return np.stack(images), np.array(labels), np.stack(crops)


def check_crops(
    batches: Iterable[Batch], source: JpegSource, *, max_seconds: float, same_decoder: bool
) -> None:
    """Compare every image with its crop, until `max_seconds` have passed.

    Decoders differ by a few levels. With a decoder other than Pillow's, the mean difference must be
    less than 4; a wrong crop differs by more than 10.
    """
    deadline = time.perf_counter() + max_seconds
    seen: list[tuple[int, ...]] = []
    for images, labels, crops in batches:
        if images.dtype != np.uint8 or images.shape[1:] != (CROP, CROP, 3):
            raise ContentError(f"Expected uint8 crops, got {images.dtype}{list(images.shape[1:])}.")
        for image, label, crop in zip(images, labels.tolist(), crops.tolist(), strict=True):
            expected = decode_crop_flip(source[label][0], *crop)
            gap = np.abs(image.astype(np.int16) - expected).mean()
            if gap > (0 if same_decoder else 4):
                raise ContentError(f"Record {label} differs from its crop by {gap:.2g} levels.")
            seen.append(tuple(crop))
        if time.perf_counter() > deadline:
            break
    if len(set(seen)) < 0.9 * len(seen) or {flip for *_, flip in seen} != {0, 1}:
        raise ContentError(
            f"Expected random crops, got {len(set(seen))} different ones of {len(seen)}."
        )
