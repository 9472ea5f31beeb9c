"""No loader: a plain loop over the same source."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import _large
from benchmarks._documents import ROW_LENGTH
from benchmarks._mnist import BATCH_SIZE, Mnist, RecordSource
from benchmarks.rows.integers import BATCH_SIZE as INTEGERS_BATCH_SIZE

Batch = tuple[NDArray[Any], NDArray[Any]]


def fill(source: RecordSource, indices: Sequence[int]) -> Batch:
    """Copy each record into the arrays of the batch."""
    images = np.empty((len(indices), 28, 28), np.uint8)
    labels = np.empty(len(indices), np.int64)
    for row, index in enumerate(indices):
        images[row], labels[row] = source[index]
    return images, labels


def stack(source: RecordSource, indices: Sequence[int]) -> Batch:
    """Read all records of the batch, and call `np.stack`."""
    images, labels = zip(*[source[index] for index in indices], strict=True)
    return np.stack(images), np.array(labels)


def concatenate(source: RecordSource, indices: Sequence[int]) -> Batch:
    """Read all records of the batch, and call `np.concatenate`."""
    images, labels = zip(*[source[index] for index in indices], strict=True)
    return np.concatenate(images).reshape(len(images), 28, 28), np.array(labels)


BATCHERS = {"fill": fill, "stack": stack, "concatenate": concatenate}


def mnist(data: Mnist, *, shuffle: bool, batcher: str) -> Callable[[], Iterator[Batch]]:
    """Loop over the per-record source."""
    source = RecordSource(data)
    make = BATCHERS[batcher]

    def start() -> Iterator[Batch]:
        count = len(source)
        order: Sequence[int] = range(count)
        if shuffle:
            order = np.random.default_rng(0).permutation(count).tolist()
        for first in range(0, count, BATCH_SIZE):
            yield make(source, order[first : first + BATCH_SIZE])

    return start


def columns(data: Mnist, *, take: bool) -> Callable[[], Iterator[Batch]]:
    """Gather each batch from the arrays."""
    images, labels = data.images, data.labels

    def start() -> Iterator[Batch]:
        order = np.random.default_rng(0).permutation(len(labels))
        for first in range(0, len(order), BATCH_SIZE):
            rows = order[first : first + BATCH_SIZE]
            if take:
                yield images.take(rows, axis=0), labels.take(rows)
            else:
                yield images[rows], labels[rows]

    return start


def slices(data: Mnist) -> Callable[[], Iterator[Batch]]:
    """Copy slices, in order."""
    images, labels = data.images, data.labels

    def start() -> Iterator[Batch]:
        for first in range(0, len(labels), BATCH_SIZE):
            rows = slice(first, first + BATCH_SIZE)
            yield images[rows].copy(), labels[rows].copy()

    return start


def add_one(element: int) -> int:
    """Add one, in a plain Python function."""
    return element + 1


def integers(count: int) -> Callable[[], Iterator[NDArray[Any]]]:
    """Call the Python function for every integer."""

    def start() -> Iterator[NDArray[Any]]:
        for first in range(0, count, INTEGERS_BATCH_SIZE):
            rows = range(first, min(first + INTEGERS_BATCH_SIZE, count))
            yield np.array([add_one(index) for index in rows])

    return start


def large_batches(pool: _large.Images) -> Callable[[], Iterator[_large.Images]]:
    """Copy a batch that exists already into the same memory, repeatedly."""
    batch = np.concatenate([pool] * (_large.BATCH_SIZE // len(pool)))
    target = np.zeros_like(batch)

    def start() -> Iterator[_large.Images]:
        for _ in range(_large.NUM_RECORDS // _large.BATCH_SIZE):
            np.copyto(target, batch)
            yield target

    return start


def packing(documents: list[NDArray[Any]]) -> Callable[[], Iterator[dict[str, NDArray[Any]]]]:
    """Write each document to the current row, or to the next one, without a choice of bins."""

    def start() -> Iterator[dict[str, NDArray[Any]]]:
        ramp = np.arange(ROW_LENGTH, dtype=np.int32)
        rows, filled, number = np.zeros((3, ROW_LENGTH), np.int32), 0, 0
        for document in documents:
            size = len(document)
            if filled + size > ROW_LENGTH:
                yield dict(zip(PACKED, rows, strict=True))
                rows, filled, number = np.zeros((3, ROW_LENGTH), np.int32), 0, 0
            end, number = filled + size, number + 1
            rows[0, filled:end] = document
            rows[1, filled:end] = number
            rows[2, filled:end] = ramp[:size]
            filled = end
        yield dict(zip(PACKED, rows, strict=True))

    return start


PACKED = ("tokens", "tokens_segment_ids", "tokens_positions")
