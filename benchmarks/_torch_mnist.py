"""MNIST as map-style PyTorch datasets, which both PyTorch and gristmill read unchanged."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils import data as torch_data

from benchmarks._mnist import Mnist


def flatten_and_cast(image: Any) -> NDArray[np.float32]:
    """Apply the transform of the tutorial in the JAX documentation."""
    return np.ravel(np.array(image, dtype=np.float32))


class PillowImages(torch_data.Dataset[Any]):
    """The same as torchvision's `MNIST`: tensors in memory, and a Pillow image for each item."""

    def __init__(self, mnist: Mnist, transform: Callable[[Any], Any], *, repeats: int = 1) -> None:
        self.data = torch.from_numpy(mnist.images)
        self.targets = torch.from_numpy(mnist.labels)
        self.transform = transform
        self._length = repeats * len(self.data)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Any, int]:
        index %= len(self.data)
        image = Image.fromarray(self.data[index].numpy())
        return self.transform(image), int(self.targets[index])


class Arrays(torch_data.Dataset[Any]):
    """Items that are a row of an array in memory and a Python number."""

    def __init__(self, mnist: Mnist, *, repeats: int = 1) -> None:
        self.data = mnist.images.reshape(len(mnist.images), -1).astype(np.float32)
        self.targets = mnist.labels
        self._length = repeats * len(self.data)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        index %= len(self.data)
        return self.data[index], int(self.targets[index])


class Tensors(torch_data.Dataset[Any]):
    """Items that are rows of tensors in memory."""

    def __init__(self, mnist: Mnist, *, repeats: int = 1) -> None:
        self.data = torch.from_numpy(mnist.images.reshape(len(mnist.images), -1)).float()
        self.targets = torch.from_numpy(mnist.labels)
        self._length = repeats * len(self.data)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        index %= len(self.data)
        return self.data[index], self.targets[index]


def dataset(mnist: Mnist, items: str, *, repeats: int = 1) -> torch_data.Dataset[Any]:
    """Return the dataset of a row."""
    if items == "arrays":
        return Arrays(mnist, repeats=repeats)
    if items == "tensors":
        return Tensors(mnist, repeats=repeats)
    return PillowImages(mnist, flatten_and_cast, repeats=repeats)
