"""TFDS, used as in the tutorial of the JAX documentation."""

from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from benchmarks import _tfds_mnist
from benchmarks._mnist import BATCH_SIZE
from benchmarks.contenders._grain_api import Start


def mnist(folder: Path, *, autocache: bool, prefetch: int | None = 1) -> Start:
    """Decode with TensorFlow in its own threads, batch, and convert to NumPy."""
    from tensorflow.data import AUTOTUNE

    config = tfds.ReadConfig(try_autocache=autocache)
    dataset: Any = _tfds_mnist.builder(folder).as_dataset(
        split="train", as_supervised=True, read_config=config
    )
    dataset = dataset.batch(BATCH_SIZE).prefetch(AUTOTUNE if prefetch is None else prefetch)
    return lambda: iter(tfds.as_numpy(dataset))
