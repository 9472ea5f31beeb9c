"""gristmill, reading the datasets of other libraries."""

from pathlib import Path
from typing import Any

import gristmill
from benchmarks._mnist import BATCH_SIZE, NUM_REPEATS, Mnist
from benchmarks.contenders._grain_api import Start


def torch_mnist(data: Mnist, *, items: str, worker_count: int, shuffle: bool = False) -> Start:
    """Read the same map-style dataset as PyTorch's DataLoader."""
    from benchmarks import _torch_mnist

    repeats = NUM_REPEATS if worker_count else 1
    dataset: Any = gristmill.from_torch(_torch_mnist.dataset(data, items, repeats=repeats))
    return _batches(dataset, shuffle=shuffle, worker_count=worker_count)


def torch_in_memory(data: Mnist, *, shuffle: bool) -> Start:
    """Read a `TensorDataset`."""
    from torch.utils import data as torch_data

    from benchmarks import _torch_mnist

    tensors = _torch_mnist.Tensors(data)
    dataset: Any = gristmill.from_torch(torch_data.TensorDataset(tensors.data, tensors.targets))
    return _batches(dataset, shuffle=shuffle)


def hf_mnist(data: Mnist) -> Start:
    """Read the same shuffled dataset as Hugging Face's `.iter`."""
    from benchmarks.contenders import huggingface

    dataset: Any = gristmill.from_huggingface(huggingface.shuffled(data))
    batches = dataset.batch(BATCH_SIZE)

    def start() -> Any:
        return map(huggingface.as_pair, batches)

    return start


def tfds_mnist(folder: Path, *, worker_count: int = 0) -> Start:
    """Read the split that TFDS prepared."""
    from benchmarks import _tfds_mnist

    builder = _tfds_mnist.builder(folder)
    dataset = gristmill.from_tfds(builder, split="train", as_supervised=True)
    return _batches(dataset, worker_count=worker_count)


def _batches(dataset: Any, *, shuffle: bool = False, worker_count: int = 0) -> Start:
    ordered = dataset.shuffle(seed=0) if shuffle else dataset
    batches = ordered.batch(BATCH_SIZE).to_iter_dataset()
    options = gristmill.MultiprocessingOptions(num_workers=worker_count)
    made = batches.mp_prefetch(options)
    return lambda: iter(made)
