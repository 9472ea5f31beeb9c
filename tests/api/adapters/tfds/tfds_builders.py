"""Small datasets that TFDS itself prepares, without a network, and comparison with its records."""

import io
import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from gristmill import MapDataset
from gristmill.testing._records import difference

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
logging.getLogger("absl").setLevel(logging.ERROR)  # it warns that OpenCV is not installed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow_datasets as tfds

tfds.disable_progress_bar()

FORMATS = ("array_record", "tfrecord")
NUM_TRAIN, NUM_TEST = 90, 30


def make_image(seed: int, shape: tuple[int, int, int] = (28, 28, 1)) -> NDArray[np.uint8]:
    """Return an image of slopes, noise and empty areas, for which each PNG filter is useful."""
    rng = np.random.default_rng(seed)
    height, width, channels = shape
    slope = np.add.outer(np.arange(height) * (seed % 5), np.arange(width) * (seed % 7))
    image = np.repeat(slope[:, :, None], channels, axis=2) + rng.integers(0, 3, shape)
    image[: seed % height] = 0
    image[height // 2, :] = rng.integers(0, 256, (width, channels))
    return image.astype(np.uint8)


def as_file(
    array: NDArray[np.uint8], kind: str = "png", mode: str | None = None, **options: Any
) -> bytes:
    """Return an image as the bytes of a file."""
    image = PIL.Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    file = io.BytesIO()
    (image if mode is None else image.convert(mode)).save(file, kind, **options)
    return file.getvalue()


class _Small(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A builder of two splits, whose records are in the order of their numbers."""

    VERSION = tfds.core.Version("1.0.0")
    KEYS: Any = None
    code_path = None  # TFDS would look there for checksums, with a package it does not depend on

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
    """Images and labels, as in MNIST."""

    KEYS = ("image", "label")

    def features(self) -> Any:
        return tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=(28, 28, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
        )

    def record(self, number: int) -> dict[str, Any]:
        return {"image": make_image(number), "label": number % 10}


class Facts(_Small, skip_registration=True):
    """Numbers and strings of all plain types, some of them nested."""

    KEYS = ({"words": "text", "more": "nested"}, "label", "mask")

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
    """Strings and labels, as in language datasets."""

    KEYS = ("text", "label")

    def features(self) -> Any:
        return tfds.features.FeaturesDict(
            {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(num_classes=2)}
        )

    def record(self, number: int) -> dict[str, Any]:
        return {"text": "word " * (number % 7), "label": number % 2}


IMAGE_SHAPE = (12, 10, 3)


class Images(_Small, skip_registration=True):
    """Image files of many kinds, some of which do not have the declared shape."""

    KEYS = ("image", "number")

    def features(self) -> Any:
        return tfds.features.FeaturesDict(
            {"image": tfds.features.Image(shape=IMAGE_SHAPE), "number": np.int32}
        )

    def record(self, number: int) -> dict[str, Any]:
        array = make_image(number, IMAGE_SHAPE)
        stored: Any = [
            lambda: array,
            lambda: as_file(array),
            lambda: as_file(array, "jpeg"),
            lambda: as_file(array, mode="L"),
            lambda: as_file(array, mode="P"),
            lambda: as_file(array, dpi=(100, 100)),
            lambda: as_file(array, mode="RGBA") if number % 2 else as_file(array[:5, :5]),
        ][number % 7 if number >= 42 else number % 6]()
        return {"image": stored, "number": number}


class Boxes(_Small, skip_registration=True):
    """Values of one shape that only TFDS can decode."""

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
            "photo": as_file(make_image(number, (8 + number % 3, 9, 3)), "jpeg"),
            "tokens": list(range(number % 4)),
            "maybe": number if number % 2 else None,
            "number": number,
        }


BUILDERS: dict[str, Any] = {
    kind.__name__: kind for kind in (Digits, Facts, Words, Images, Boxes, Ragged)
}


class Prepared:
    """Returns builders of these datasets, each prepared once for each file format."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, kind: str, file_format: str = "array_record") -> Any:
        return prepare(kind, file_format, self.folder(file_format))

    def folder(self, file_format: str) -> Path:
        return self._folder / file_format


def prepare(kind: str, file_format: str, folder: Path) -> Any:
    """Let TFDS write a dataset into files, three for each split."""
    builder = BUILDERS[kind](data_dir=folder, file_format=file_format)
    if not builder.is_prepared():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=3))
    return builder


def damage(prepared: Prepared, folder: Path, kind: str, file_format: str) -> Any:
    """Return a builder over a copy whose first file is damaged, in TFRecord format at record 4."""
    shutil.copytree(prepared(kind, file_format).data_path, folder)
    builder = tfds.builder_from_directory(folder)
    path = Path(builder.info.splits["train"].file_instructions[0].filename)
    data = bytearray(path.read_bytes())
    start = 2000  # in one of the first records
    if file_format == "tfrecord":
        start = 0
        for _ in range(4):
            start += 16 + int.from_bytes(data[start : start + 8], "little")
        start += 20
    for position in range(start, start + 8):
        data[position] ^= 255
    path.write_bytes(data)
    return builder


def source_of(dataset: MapDataset[Any]) -> Any:
    return dataset._plan_node.source  # pyright: ignore


def to_numpy(value: Any, info: Any) -> Any:
    """Convert the Python numbers of a TFDS data source to the types that the features declare."""
    if isinstance(info, dict):
        return {name: to_numpy(value[name], info[name]) for name in value}
    if isinstance(value, bool | int | float):
        return np.dtype(info.np_dtype).type(value)
    return value


def records_of(builder: Any, split: Any) -> list[Any]:
    """Return the records of a split as TFDS decodes them, in NumPy types."""
    features = builder.info.features
    if builder.info.file_format.value == "array_record":
        records = list(builder.as_data_source(split))
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import tensorflow as tf  # noqa: PLC0415
        records: list[Any] = []
        for file in builder.info.splits[split].file_instructions:
            stored = tf.data.TFRecordDataset(file.filename).skip(file.skip).take(file.take)
            records += [features.deserialize_example_np(one) for one in stored.as_numpy_iterator()]
    return [to_numpy(record, features.get_tensor_info()) for record in records]


def check_same(expected: list[Any], actual: Any) -> None:
    actual = list(actual)
    assert len(actual) == len(expected)
    for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
        assert difference(one, other, f"record {number}") is None
