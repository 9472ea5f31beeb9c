"""Check that a contender delivered the records of its row."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._clock import Epoch


class ContentError(Exception):
    """A contender did not deliver the records of the row."""


def split_batches(num_records: int, *, batch_size: int, streams: int = 1) -> list[range]:
    """Return the records of every batch, in the order of the batches.

    With several streams, each batches every n-th record, and batches are taken from the streams in
    turn. Grain forms its batches in this way when it has workers.

    >>> split_batches(6, batch_size=2)
    [range(0, 2), range(2, 4), range(4, 6)]
    >>> [list(batch) for batch in split_batches(6, batch_size=2, streams=2)]
    [[0, 2], [1, 3], [4], [5]]
    """
    strides = [range(first, num_records, streams) for first in range(streams)]
    return [
        stride[begin : begin + batch_size]
        for begin in range(0, len(strides[0]), batch_size)
        for stride in strides
        if begin < len(stride)
    ]


def order_of(batches: list[range]) -> NDArray[np.int64]:
    """Return the records of all batches, concatenated."""
    return np.concatenate([np.asarray(batch, np.int64) for batch in batches])


def check_batch_sizes(epoch: Epoch, batch_size: int, num_records: int, *, streams: int = 1) -> None:
    """Check that all batches are full, except the last one of each stream in a complete epoch."""
    batches = split_batches(num_records, batch_size=batch_size, streams=streams)
    expected = [len(batch) for batch in batches]
    if not epoch.complete:
        expected = expected[: len(epoch.batch_sizes)]
    if epoch.batch_sizes != expected:
        raise ContentError(
            f"Expected {len(expected)} batches of {batch_size} (the last {expected[-1]}), "
            f"got {len(epoch.batch_sizes)} of sizes {sorted(set(epoch.batch_sizes))}."
        )


def check_workers(seen: int | None, expected: int) -> None:
    """Check that there were as many worker processes as the row requires."""
    if seen is not None and seen < expected:
        raise ContentError(f"Expected {expected} worker processes, found {seen}.")


def check_in_order(epoch: Epoch, expected: NDArray[Any]) -> None:
    """Check that the values are the expected ones in order, up to the time limit."""
    expected = expected if epoch.complete else expected[: len(epoch.values)]
    if not np.array_equal(epoch.values, expected):
        raise ContentError("The values are not those of the source in its order.")


def check_shuffled(epoch: Epoch, expected: NDArray[Any]) -> None:
    """Check that the values are the expected ones in another order, up to the time limit."""
    check_subset(Counter(epoch.values.tolist()), Counter(expected.tolist()), epoch.complete)
    if np.array_equal(epoch.values, expected[: len(epoch.values)]):
        raise ContentError("The values must be shuffled, but have the order of the source.")


def check_subset(seen: Counter[int], expected: Counter[int], complete: bool) -> None:
    """Check that no value is repeated, and that a complete epoch misses none."""
    if not seen <= expected or (complete and seen != expected):
        raise ContentError("The values are not those of the source.")


def check_images(
    batches: Iterable[tuple[NDArray[Any], NDArray[Any]]],
    images: NDArray[np.uint8],
    labels: NDArray[Any],
    *,
    order: NDArray[np.int64] | None,
    num_repeats: int = 1,
    max_seconds: float,
) -> None:
    """Compare every byte of an epoch with the source, until `max_seconds` have passed.

    `order` contains the numbers of the records in the expected order, or is None if any order is
    correct. An epoch contains the source `num_repeats` times; record numbers continue to increase.
    """
    deadline = time.perf_counter() + max_seconds
    seen: list[int] = []
    complete = True
    for batch_images, batch_labels in batches:
        if batch_images.dtype != images.dtype or batch_images.shape[1:] != images.shape[1:]:
            raise ContentError(
                f"Expected images of {images.dtype}{list(images.shape[1:])}, "
                f"got {batch_images.dtype}{list(batch_images.shape[1:])}."
            )
        seen += record_hashes(batch_images, batch_labels)
        if time.perf_counter() > deadline:
            complete = False
            break
    expected = record_hashes(images, labels)
    if order is None:
        check_subset(Counter(seen), Counter(expected * num_repeats), complete)
    else:
        wanted = [expected[record % len(expected)] for record in order.tolist()]
        if seen != (wanted if complete else wanted[: len(seen)]):
            raise ContentError("The images are not those of the source in its order.")


def record_hashes(images: NDArray[Any], labels: NDArray[Any]) -> list[int]:
    """Return a hash of each image and its label."""
    pairs = zip(images, labels.tolist(), strict=True)
    return [hash((image.tobytes(), label)) for image, label in pairs]
