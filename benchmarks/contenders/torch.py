"""PyTorch's DataLoader without workers, with NumPy batches."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import data as torch_data

from benchmarks._mnist import BATCH_SIZE, Mnist, RecordSource
from benchmarks.rows.integers import BATCH_SIZE as INTEGERS_BATCH_SIZE

Record = tuple[NDArray[np.uint8], int]
Batch = tuple[NDArray[Any], NDArray[Any]]


def collate_as_in_jax_docs(records: Sequence[Record]) -> Batch:
    """Use PyTorch's default collate, and view its tensors as NumPy arrays."""
    images, labels = torch_data.default_collate(list(records))
    return np.asarray(images), np.asarray(labels)


def collate_by_stack(records: Sequence[Record]) -> Batch:
    """Use `np.stack`, without tensors."""
    images, labels = zip(*records, strict=True)
    return np.stack(images), np.array(labels)


def collate_by_concatenate(records: Sequence[Record]) -> Batch:
    """Use `np.concatenate`: the new axis that `np.stack` adds takes longer than the copy."""
    images, labels = zip(*records, strict=True)
    return np.concatenate(images).reshape(len(images), *images[0].shape), np.array(labels)


COLLATES = {
    "jax docs": collate_as_in_jax_docs,
    "stack": collate_by_stack,
    "concatenate": collate_by_concatenate,
}


def identity(batch: Any) -> Any:
    """Return a batch unchanged, for datasets that return whole batches."""
    return batch


def mnist(data: Mnist, *, shuffle: bool, collate: str) -> Callable[[], Any]:
    """Read a per-record dataset."""
    source: Any = RecordSource(data)
    loader = torch_data.DataLoader(
        source, batch_size=BATCH_SIZE, shuffle=shuffle, collate_fn=COLLATES[collate]
    )
    return lambda: iter(loader)


def tensor_columns(data: Mnist) -> Callable[[], Any]:
    """Read a `TensorDataset` with a batch of indices at a time."""
    dataset = torch_data.TensorDataset(torch.from_numpy(data.images), torch.from_numpy(data.labels))
    batches = torch_data.BatchSampler(
        torch_data.RandomSampler(dataset), BATCH_SIZE, drop_last=False
    )
    loader = torch_data.DataLoader(
        dataset,
        sampler=batches,
        batch_size=None,
        collate_fn=lambda batch: (batch[0].numpy(), batch[1].numpy()),
    )
    return lambda: iter(loader)


class ArrayDataset(torch_data.Dataset[Any]):
    """NumPy arrays, read a batch at a time through PyTorch's `__getitems__`."""

    def __init__(self, data: Mnist) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data.images)

    def __getitems__(self, indices: list[int]) -> Batch:
        rows = np.array(indices)
        return self._data.images.take(rows, axis=0), self._data.labels.take(rows)


def array_columns(data: Mnist) -> Callable[[], Any]:
    """Read a dataset of NumPy arrays with `__getitems__`."""
    loader = torch_data.DataLoader(
        ArrayDataset(data), batch_size=BATCH_SIZE, shuffle=True, collate_fn=identity
    )
    return lambda: iter(loader)


class PlusOne(torch_data.Dataset[int]):
    """Integers plus one, one at a time."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return index + 1


class PlusOneByBatch(PlusOne):
    """Integers plus one, a batch at a time in NumPy."""

    def __getitems__(self, indices: list[int]) -> NDArray[Any]:
        return np.array(indices) + 1


def integers(count: int, *, vectorised: bool) -> Callable[[], Any]:
    """Add one to integers, by element or by batch."""
    loader = torch_data.DataLoader(
        PlusOneByBatch(count) if vectorised else PlusOne(count),
        batch_size=INTEGERS_BATCH_SIZE,
        collate_fn=identity if vectorised else np.array,
    )
    return lambda: iter(loader)
