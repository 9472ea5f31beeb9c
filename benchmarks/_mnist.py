"""The images of the MNIST rows. They are written once and loaded by each process."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_RECORDS = 60_000
NUM_REPEATS = 10
BATCH_SIZE = 128


@dataclass(frozen=True)
class Mnist:
    """Images and their labels in memory."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]


class RecordSource:
    """A source as users write it: records are an image and its label as a Python int."""

    def __init__(self, mnist: Mnist) -> None:
        self._images = mnist.images
        self._labels = mnist.labels

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        return self._images[index], int(self._labels[index])


class RepeatedSource(RecordSource):
    """The same records, repeated, for an epoch that is longer than buffers take to fill."""

    def __len__(self) -> int:
        return NUM_REPEATS * len(self._images)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        index %= len(self._images)
        return self._images[index], int(self._labels[index])


def prepare(directory: Path | None, folder: Path) -> str:
    """Write the records as `.npy` files to `folder`, and return a description of them."""
    demo: Any = importlib.import_module("gristmill.demo")  # so that --help imports no loader
    mnist = demo.load_mnist(directory)
    images, labels = mnist.train_images, mnist.train_labels
    np.save(folder / "images.npy", np.resize(images, (NUM_RECORDS, *images.shape[1:])))
    np.save(folder / "labels.npy", np.resize(labels, NUM_RECORDS))
    if directory is None:
        return f"the packaged sample of {len(images):,} images, repeated to {NUM_RECORDS:,}"
    return f"{len(images):,} images from --data"


def load(folder: Path) -> Mnist:
    """Read the files that `prepare` wrote."""
    return Mnist(np.load(folder / "images.npy"), np.load(folder / "labels.npy"))
