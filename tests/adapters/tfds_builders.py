"""Small datasets that TFDS itself prepares, without a network."""

import io
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
logging.getLogger("absl").setLevel(logging.ERROR)  # that OpenCV is not installed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow_datasets as tfds

tfds.disable_progress_bar()

FORMATS = ("array_record", "tfrecord")
NUM_TRAIN, NUM_TEST = 90, 30


def picture(seed: int, shape: tuple[int, int, int] = (28, 28, 1)) -> NDArray[np.uint8]:
    """Give a picture of slopes, noise and empty stretches: each filter of PNG is of use."""
    rng = np.random.default_rng(seed)
    height, width, channels = shape
    slope = np.add.outer(np.arange(height) * (seed % 5), np.arange(width) * (seed % 7))
    made = np.repeat(slope[:, :, None], channels, axis=2) + rng.integers(0, 3, shape)
    made[: seed % height] = 0
    made[height // 2, :] = rng.integers(0, 256, (width, channels))
    return made.astype(np.uint8)


def as_file(
    array: NDArray[np.uint8], kind: str = "png", mode: str | None = None, **how: Any
) -> bytes:
    """Give a picture as the bytes of a file."""
    image = PIL.Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    file = io.BytesIO()
    (image if mode is None else image.convert(mode)).save(file, kind, **how)
    return file.getvalue()


class _Small(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Splits of two lengths, in the order they are made in."""

    VERSION = tfds.core.Version("1.0.0")
    KEYS: Any = None
    code_path = None  # TFDS looks there for checksums of downloads, by a package it does not need

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(
            builder=self,
            features=self.features(),
            supervised_keys=self.KEYS,
            disable_shuffling=True,
        )

    def features(self) -> Any:
        raise NotImplementedError

    def record(self, number: int) -> dict[str, Any]:
        raise NotImplementedError

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        del dl_manager
        return {"train": self._records(0, NUM_TRAIN), "test": self._records(500, NUM_TEST)}

    def _records(self, first: int, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
        return ((number, self.record(first + number)) for number in range(count))

    def _generate_examples(self) -> Any:
        raise NotImplementedError


class Digits(_Small, skip_registration=True):
    """The likes of MNIST."""

    KEYS = ("image", "label")

    def features(self) -> Any:
        return tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=(28, 28, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
        )

    def record(self, number: int) -> dict[str, Any]:
        return {"image": picture(number), "label": number % 10}


class Facts(_Small, skip_registration=True):
    """Numbers and texts of all plain types, some of them nested."""

    KEYS = ({"said": "text", "more": "nested"}, "label", "mask")

    def features(self) -> Any:
        return tfds.features.FeaturesDict(
            {
                "text": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=["no", "yes"]),
                "score": tfds.features.Scalar(np.float32),
                "weights": tfds.features.Tensor(shape=(2,), dtype=np.float64),
                "wide": tfds.features.Tensor(shape=(2, 2), dtype=np.int64),
                "mask": tfds.features.Tensor(shape=(5,), dtype=np.bool_),
                "nested": {
                    "pixels": tfds.features.Tensor(shape=(2, 3), dtype=np.uint8),
                    "deep": {"number": np.int16},
                },
            }
        )

    def record(self, number: int) -> dict[str, Any]:
        rng = np.random.default_rng(number)
        return {
            "text": [b"", b"ends in zero\0", b"\xff is no text", "gr\u00fc\u00df".encode()][
                number % 4
            ],
            "label": number % 2,
            "score": np.float32(rng.normal()) if number % 9 else np.float32(np.nan),
            "weights": rng.normal(size=2).astype(np.float32).astype(np.float64),
            "wide": rng.integers(-(2**63), 2**63 - 1, (2, 2)) >> (number % 60),
            "mask": rng.integers(0, 2, 5).astype(np.bool_),
            "nested": {
                "pixels": rng.integers(0, 256, (2, 3)).astype(np.uint8),
                "deep": {"number": np.int16(-number)},
            },
        }


class Words(_Small, skip_registration=True):
    """Texts and labels, as datasets of language have."""

    KEYS = ("text", "label")

    def features(self) -> Any:
        return tfds.features.FeaturesDict(
            {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(num_classes=2)}
        )

    def record(self, number: int) -> dict[str, Any]:
        return {"text": "word " * (number % 7), "label": number % 2}


PICTURE_SHAPE = (12, 10, 3)


class Pictures(_Small, skip_registration=True):
    """Files of many kinds where pictures of one shape are promised; some keep it not."""

    KEYS = ("picture", "number")

    def features(self) -> Any:
        return tfds.features.FeaturesDict(
            {"picture": tfds.features.Image(shape=PICTURE_SHAPE), "number": np.int32}
        )

    def record(self, number: int) -> dict[str, Any]:
        array = picture(number, PICTURE_SHAPE)
        stored: Any = [
            lambda: array,
            lambda: as_file(array),
            lambda: as_file(array, "jpeg"),
            lambda: as_file(array, mode="L"),
            lambda: as_file(array, mode="P"),
            lambda: as_file(array, dpi=(100, 100)),
            lambda: as_file(array, mode="RGBA") if number % 2 else as_file(array[:5, :5]),
        ][number % 7 if number >= 42 else number % 6]()
        return {"picture": stored, "number": number}


class Boxes(_Small, skip_registration=True):
    """Values of one shape that TFDS alone decodes."""

    def features(self) -> Any:
        return tfds.features.FeaturesDict(
            {
                "box": tfds.features.BBoxFeature(),
                "packed": tfds.features.Tensor(shape=(3, 2), dtype=np.float32, encoding="zlib"),
            }
        )

    def record(self, number: int) -> dict[str, Any]:
        side = 0.5 + number / 2000
        packed = np.full((3, 2), number, np.float32)
        return {"box": tfds.features.BBox(0.1, 0.2, side, side), "packed": packed}


class Ragged(_Small, skip_registration=True):
    """Values whose shapes differ from record to record."""

    def features(self) -> Any:
        return tfds.features.FeaturesDict(
            {
                "photo": tfds.features.Image(encoding_format="jpeg"),
                "tokens": tfds.features.Sequence(np.int64),
                "maybe": tfds.features.Scalar(np.int64, optional=True),
                "number": np.int64,
            }
        )

    def record(self, number: int) -> dict[str, Any]:
        return {
            "photo": as_file(picture(number, (8 + number % 3, 9, 3)), "jpeg"),
            "tokens": list(range(number % 4)),
            "maybe": number if number % 2 else None,
            "number": number,
        }


BUILDERS: dict[str, Any] = {
    kind.__name__: kind for kind in (Digits, Facts, Words, Pictures, Boxes, Ragged)
}


class Prepared:
    """Gives builders of these datasets, each prepared once for each format."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, kind: str, file_format: str = "array_record") -> Any:
        return prepare(kind, file_format, self.folder(file_format))

    def folder(self, file_format: str) -> Path:
        return self._folder / file_format


def prepare(kind: str, file_format: str, folder: Path) -> Any:
    """Have TFDS write a dataset into files, three for each split."""
    builder = BUILDERS[kind](data_dir=folder, file_format=file_format)
    if not builder.is_prepared():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=3))
    return builder
