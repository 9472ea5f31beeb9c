"""Trains the same model with each loader, and measures time and accuracy."""

import statistics
import time
from dataclasses import dataclass

import jax
import numpy as np

from mnist.model import count_correct, init_params, update


@dataclass(frozen=True)
class Result:
    """The time of training with one loader, and the accuracy of the trained model."""

    name: str
    peer: str | None
    seconds: float  # median time of an epoch
    images_per_second: float
    accuracy: float


def train(contender, data, *, epochs=1, advance=lambda images: None):
    """Train from the initial weights, and return the `Result`.

    An epoch is measured from the creation of the loader's iterator to the end of the last update.
    Compilation is not included, nor what a library does once, at its first batch.

    Args:
        contender: The loader to train with.
        data: The `gristmill.demo.Mnist` that it reads, for the test images.
        epochs: Number of epochs.
        advance: Called with the number of images of each batch after its update.
    """
    warm_up(contender, len(data.train_labels))
    params = init_params()
    seconds = []
    for _ in range(epochs):
        start = time.perf_counter()
        for images, labels in contender.batches():
            params = update(params, images, labels)
            advance(len(labels))
        jax.block_until_ready(params)  # JAX computes asynchronously
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    return Result(
        name=contender.name,
        peer=contender.peer,
        seconds=median,
        images_per_second=len(data.train_labels) / median,
        accuracy=accuracy(params, data.test_images, data.test_labels),
    )


def warm_up(contender, num_images):
    """Compile the update for the shapes and dtypes of full batches and of the last batch.

    One batch of the loader is read for this.
    """
    batch = next(iter(contender.batches())) if contender.first is None else contender.first()
    images, labels = map(np.asarray, batch)
    params = init_params()
    for size in {len(labels), num_images % len(labels) or len(labels)}:
        dummy = np.zeros((size, *images.shape[1:]), images.dtype), np.zeros(size, labels.dtype)
        jax.block_until_ready(update(params, *dummy))


def accuracy(params, images, labels, batch_size=1_000):
    """Return the share of the images that the model classifies correctly."""
    starts = range(0, len(labels), batch_size)
    batches = [slice(start, start + batch_size) for start in starts]
    correct = sum(int(count_correct(params, images[batch], labels[batch])) for batch in batches)
    return correct / len(labels)


def disagreement(results):
    """Describe which loaders differ in accuracy, or return `None` if all have the same."""
    by_accuracy = {}
    for result in results:
        by_accuracy.setdefault(result.accuracy, []).append(result.name)
    if len(by_accuracy) < 2:
        return None
    groups = "; ".join(f"{value} with {', '.join(names)}" for value, names in by_accuracy.items())
    return f"The test accuracies differ, so some images were in another order: {groups}."
