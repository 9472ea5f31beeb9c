"""tf.data."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks._mnist import BATCH_SIZE, Mnist, RecordSource
from benchmarks.rows.integers import BATCH_SIZE as INTEGERS_BATCH_SIZE

AUTOTUNE = tf.data.AUTOTUNE


def mnist(data: Mnist, *, shuffle: bool, prefetch: bool) -> Callable[[], Any]:
    """Use `from_generator` with the per-record source. The generator shuffles."""
    source = RecordSource(data)

    def records() -> Iterator[Any]:
        count = len(source)
        order = np.random.default_rng(0).permutation(count).tolist() if shuffle else range(count)
        for index in order:
            yield source[index]

    signature = (tf.TensorSpec((28, 28), tf.uint8), tf.TensorSpec((), tf.int64))
    dataset = tf.data.Dataset.from_generator(records, output_signature=signature)
    dataset = dataset.batch(BATCH_SIZE)
    if prefetch:
        dataset = dataset.prefetch(AUTOTUNE)
    return dataset.as_numpy_iterator


def slices(data: Mnist) -> Callable[[], Any]:
    """Use `from_tensor_slices`, shuffled by record."""
    dataset = tf.data.Dataset.from_tensor_slices((data.images, data.labels))
    dataset = dataset.shuffle(len(data.labels), seed=0).batch(BATCH_SIZE).prefetch(AUTOTUNE)
    return dataset.as_numpy_iterator


def gather(data: Mnist) -> Callable[[], Any]:
    """Shuffle and batch indices, and gather each batch with one call."""
    images, labels = tf.constant(data.images), tf.constant(data.labels)
    indices = tf.data.Dataset.range(len(data.labels)).shuffle(len(data.labels), seed=0)
    dataset = indices.batch(BATCH_SIZE).map(
        lambda rows: (tf.gather(images, rows), tf.gather(labels, rows)),
        num_parallel_calls=AUTOTUNE,
    )
    return dataset.prefetch(AUTOTUNE).as_numpy_iterator


def integers(count: int, *, vectorised: bool, prefetch: bool) -> Callable[[], Any]:
    """Add one to integers, with a compiled map before or after batching."""
    dataset = tf.data.Dataset.range(count)
    if vectorised:
        dataset = dataset.batch(INTEGERS_BATCH_SIZE).map(lambda batch: batch + 1)
    else:
        dataset = dataset.map(lambda element: element + 1).batch(INTEGERS_BATCH_SIZE)
    if prefetch:
        dataset = dataset.prefetch(AUTOTUNE)
    return dataset.as_numpy_iterator
