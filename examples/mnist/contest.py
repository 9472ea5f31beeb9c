"""Trains the same model with each loader, and measures."""

import statistics
import time
from dataclasses import dataclass

import jax
import numpy as np

from mnist.model import count_correct, init_params, update


@dataclass(frozen=True)
class Result:
    """What training with one contender took, and what the model can do afterwards."""

    name: str
    peer: str | None
    seconds: float  # of an epoch, the median of all
    waiting: float  # of these, spent in the loader's `next`
    images_per_second: float
    accuracy: float


def train(contender, data, *, epochs=1, advance=lambda images: None):
    """Train from the first weights on, and give the `Result`.

    An epoch is measured from asking the loader for an iterator to the end of the last update.
    Compiling is not in it, nor is what a library does once, at its very first batch.

    Args:
        contender: Whose batches to learn from.
        data: The `gristmill.demo.Mnist` that it reads, for the test images.
        epochs: How often to see each image.
        advance: Called with the number of images of each batch, when it is learned.
    """
    warm_up(contender, len(data.train_labels))
    params = init_params()
    seconds, waiting = [], []
    for _ in range(epochs):
        start = time.perf_counter()
        waited = 0.0
        batches = iter(contender.batches())
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            waited += time.perf_counter() - asked
            if batch is None:
                break
            images, labels = batch
            params = update(params, images, labels)
            advance(len(labels))
        jax.block_until_ready(params)  # JAX computes in the background: the clock waits for it
        seconds.append(time.perf_counter() - start)
        waiting.append(waited)
    median = statistics.median(seconds)
    return Result(
        name=contender.name,
        peer=contender.peer,
        seconds=median,
        waiting=statistics.median(waiting),
        images_per_second=len(data.train_labels) / median,
        accuracy=accuracy(params, data.test_images, data.test_labels),
    )


def warm_up(contender, num_images):
    """Compile the update for the shapes and types of the contender's batches: full ones, the last.

    One batch of it is read for this.
    """
    batch = next(iter(contender.batches())) if contender.first is None else contender.first()
    images, labels = map(np.asarray, batch)
    params = init_params()
    for size in {len(labels), num_images % len(labels) or len(labels)}:
        dummy = np.zeros((size, *images.shape[1:]), images.dtype), np.zeros(size, labels.dtype)
        jax.block_until_ready(update(params, *dummy))


def accuracy(params, images, labels, batch_size=1_000):
    """Give the share of the images that the model takes for what they are."""
    starts = range(0, len(labels), batch_size)
    parts = [slice(start, start + batch_size) for start in starts]
    return sum(int(count_correct(params, images[part], labels[part])) for part in parts) / len(
        labels
    )


def disagreement(results):
    """Say which contenders differ in accuracy, or give `None` if all have the same."""
    by_accuracy = {}
    for result in results:
        by_accuracy.setdefault(result.accuracy, []).append(result.name)
    if len(by_accuracy) < 2:
        return None
    groups = "; ".join(f"{value} with {', '.join(names)}" for value, names in by_accuracy.items())
    return f"The test accuracies differ, so somebody's images came in another order: {groups}."
