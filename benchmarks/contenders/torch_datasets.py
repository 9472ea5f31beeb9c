"""PyTorch's DataLoader with PyTorch's datasets and NumPy batches."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import data as torch_data

from benchmarks import _torch_mnist
from benchmarks._mnist import BATCH_SIZE, NUM_REPEATS, Mnist
from benchmarks.contenders.torch_workers import Start, loader


def mnist(data: Mnist, *, items: str, worker_count: int, **options: Any) -> Start:
    """Batch the items of a map-style dataset with PyTorch."""
    repeats = NUM_REPEATS if worker_count else 1
    dataset = _torch_mnist.dataset(data, items, repeats=repeats)
    return loader(dataset, BATCH_SIZE, worker_count=worker_count, **options)


def bare(data: Mnist, *, items: str) -> Start:
    """Read the items in a plain loop without a loader, and stack each batch."""
    dataset: Any = _torch_mnist.dataset(data, items)

    def start() -> Iterator[Any]:
        for first in range(0, len(dataset), BATCH_SIZE):
            last = min(first + BATCH_SIZE, len(dataset))
            images, labels = zip(*map(dataset.__getitem__, range(first, last)), strict=True)
            yield stacked(images), stacked(labels)

    return start


def stacked(leaves: Sequence[Any]) -> Any:
    """Stack leaves into one array as fast as possible."""
    if isinstance(leaves[0], torch.Tensor):
        return torch.stack(leaves).numpy()
    if isinstance(leaves[0], int):
        return np.array(leaves)
    joined = np.frombuffer(bytearray().join(leaves), leaves[0].dtype)
    return joined.reshape(len(leaves), *leaves[0].shape)


def in_memory(data: Mnist, *, shuffle: bool) -> Start:
    """Read a `TensorDataset` item by item, as in PyTorch's documentation."""
    tensors = _torch_mnist.Tensors(data)
    dataset = torch_data.TensorDataset(tensors.data, tensors.targets)
    return loader(dataset, BATCH_SIZE, worker_count=0, shuffle=shuffle)
