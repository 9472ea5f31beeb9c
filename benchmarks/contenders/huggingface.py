"""Hugging Face datasets with an Arrow table in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from benchmarks._files import BATCH_SIZE as FILES_BATCH_SIZE
from benchmarks._mnist import BATCH_SIZE, Mnist


def images_and_labels(data: Mnist) -> datasets.Dataset:
    """Return a table of fixed-size lists of pixels, which are faster to read than `Array2D`."""
    flat = data.images.reshape(len(data.images), -1)
    images = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])
    return datasets.Dataset(pa.table({"image": images, "label": pa.array(data.labels)}))


def mnist(data: Mnist, *, shuffle: bool) -> Callable[[], Any]:
    """Iterate in NumPy format, as bytes; the default would be 64-bit integers."""
    dataset: Any = images_and_labels(data).with_format("numpy", dtype=np.uint8)

    def start() -> Iterator[Any]:
        ordered = dataset.shuffle(seed=0) if shuffle else dataset
        for batch in ordered.iter(BATCH_SIZE):
            yield batch["image"].reshape(-1, 28, 28), batch["label"]

    return start


def shuffled(data: Mnist) -> Any:
    """Return the dataset in NumPy format, as bytes and shuffled, so with an indices mapping."""
    dataset: Any = images_and_labels(data).with_format("numpy", dtype=np.uint8)
    return dataset.shuffle(seed=0)


def as_pair(batch: dict[str, Any]) -> tuple[Any, Any]:
    """Return the images of a batch in two dimensions, and its labels."""
    return batch["image"].reshape(-1, 28, 28), batch["label"]


def iter_shuffled(data: Mnist) -> Callable[[], Any]:
    """Iterate over a dataset that was shuffled before."""
    dataset = shuffled(data)
    return lambda: map(as_pair, dataset.iter(BATCH_SIZE))


def parquet(path: str, folder: Path, *, numpy: bool = True) -> Callable[[], Any]:
    """Shuffle a Parquet file, which is first converted to an Arrow file."""
    dataset: Any = datasets.Dataset.from_parquet(path, cache_dir=str(folder / "hf"))
    if numpy:
        dataset = dataset.with_format("numpy")
    return lambda: dataset.shuffle(seed=0).iter(FILES_BATCH_SIZE)


def arrow(data: Mnist) -> Callable[[], Any]:
    """Iterate in Arrow format: views of the table, without a copy."""
    dataset: Any = images_and_labels(data).with_format("arrow")

    def start() -> Iterator[Any]:
        for batch in dataset.iter(BATCH_SIZE):
            images = batch["image"].combine_chunks().flatten().to_numpy()
            yield images.reshape(-1, 28, 28), batch["label"].to_numpy()

    return start
