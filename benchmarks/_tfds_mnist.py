"""MNIST as a TFDS dataset. TFDS writes it once, and each process reads it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._mnist import load

NUM_RECORDS = 30_000

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported


def builder(folder: Path) -> Any:
    """Return the builder. Its records are PNG files and labels, in the order of MNIST."""
    import tensorflow_datasets as tfds

    class MnistOfImages(tfds.core.GeneratorBasedBuilder):
        """The first images of the MNIST row."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            features = tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(28, 28, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            )
            return tfds.core.DatasetInfo(
                builder=self,
                features=features,
                supervised_keys=("image", "label"),
                disable_shuffling=True,
            )

        def _split_generators(self, dl_manager: Any) -> Any:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Iterator[Any]:
            data = load(folder)
            pairs = zip(data.images[:NUM_RECORDS], data.labels[:NUM_RECORDS], strict=True)
            for number, (image, label) in enumerate(pairs):
                yield number, {"image": image[..., np.newaxis], "label": int(label)}

    return MnistOfImages(data_dir=str(folder / "tfds"))


def prepare(folder: Path) -> str:
    """Write the records with TFDS, in its default format."""
    builder(folder).download_and_prepare()
    return f"the first {NUM_RECORDS:,} images of MNIST, written by TFDS as PNG in TFRecord"
