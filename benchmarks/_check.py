"""Whether a contender delivered what it had to."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._clock import Epoch


class ContentError(Exception):
    """A contender delivered something else than the records of the row."""


def dealt(num_records: int, *, batch_size: int, streams: int = 1) -> list[range]:
    """The records of every batch, in the order of the batches.

    With several streams each takes a stride of the records and makes batches of its own, and the
    streams take turns: that is what becomes of Grain's batches with workers.

    >>> dealt(6, batch_size=2)
    [range(0, 2), range(2, 4), range(4, 6)]
    >>> [list(batch) for batch in dealt(6, batch_size=2, streams=2)]
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
    """The records of the batches, one after another."""
    return np.concatenate([np.asarray(batch, np.int64) for batch in batches])


def check_batch_sizes(epoch: Epoch, batch_size: int, num_records: int, *, streams: int = 1) -> None:
    """Every batch is full, but for the last one (of each stream) of a complete epoch."""
    batches = dealt(num_records, batch_size=batch_size, streams=streams)
    expected = [len(batch) for batch in batches]
    if not epoch.complete:
        expected = expected[: len(epoch.batch_sizes)]
    if epoch.batch_sizes != expected:
        raise ContentError(
            f"Expected {len(expected)} batches of {batch_size} (the last {expected[-1]}), "
            f"got {len(epoch.batch_sizes)} of sizes {sorted(set(epoch.batch_sizes))}."
        )


def check_workers(seen: int | None, expected: int) -> None:
    """The worker processes of the row's name were there, and the work not done without them."""
    if seen is not None and seen < expected:
        raise ContentError(
            f"Expected {expected} worker processes, saw {seen}: not the work of this row."
        )


def check_in_order(epoch: Epoch, expected: NDArray[Any]) -> None:
    """The values are the expected ones, in order; a prefix where the time limit cut them."""
    expected = expected if epoch.complete else expected[: len(epoch.values)]
    if not np.array_equal(epoch.values, expected):
        raise ContentError("The values delivered are not the source's, in its order.")


def check_shuffled(epoch: Epoch, expected: NDArray[Any]) -> None:
    """The values are the expected ones (some of them where cut), and not in their order."""
    check_subset(Counter(epoch.values.tolist()), Counter(expected.tolist()), epoch.complete)
    if np.array_equal(epoch.values, expected[: len(epoch.values)]):
        raise ContentError("The values were to be shuffled, but came in the source's order.")


def check_subset(seen: Counter[int], expected: Counter[int], complete: bool) -> None:
    """No value came more often than it is in the source; of a complete epoch, none is missing."""
    if not seen <= expected or (complete and seen != expected):
        raise ContentError("The values delivered are not those of the source.")


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

    `order` are the numbers of the records as they must come; None where any order will do. A
    number beyond the source goes round it, `num_repeats` times in an epoch.
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
            raise ContentError("The images delivered are not the source's, in its order.")


def record_hashes(images: NDArray[Any], labels: NDArray[Any]) -> list[int]:
    """One number for each image and its label together."""
    pairs = zip(images, labels.tolist(), strict=True)
    return [hash((image.tobytes(), label)) for image, label in pairs]
