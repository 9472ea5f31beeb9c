"""MNIST as map-style PyTorch datasets, each used as it is by PyTorch and by gristmill."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils import data as torch_data

from benchmarks._mnist import Mnist


def flatten_and_cast(picture: Any) -> NDArray[np.float32]:
    """The transform of the JAX documentation's tutorial."""
    return np.ravel(np.array(picture, dtype=np.float32))


class Pictures(torch_data.Dataset[Any]):
    """What torchvision's `MNIST` does: tensors in memory, a Pillow image for each item."""

    def __init__(self, mnist: Mnist, transform: Callable[[Any], Any], *, repeats: int = 1) -> None:
        self.data = torch.from_numpy(mnist.images)
        self.targets = torch.from_numpy(mnist.labels)
        self.transform = transform
        self._length = repeats * len(self.data)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Any, int]:
        index %= len(self.data)
        picture = Image.fromarray(self.data[index].numpy())
        return self.transform(picture), int(self.targets[index])


class Arrays(torch_data.Dataset[Any]):
    """Items that are rows of an array in memory, and a Python number."""

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
    """The dataset of a row."""
    if items == "arrays":
        return Arrays(mnist, repeats=repeats)
    if items == "tensors":
        return Tensors(mnist, repeats=repeats)
    return Pictures(mnist, flatten_and_cast, repeats=repeats)
