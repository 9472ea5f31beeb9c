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


def check_batch_sizes(epoch: Epoch, batch_size: int, num_records: int) -> None:
    """Every batch is full, but for the last one of a complete epoch."""
    expected = [batch_size] * (num_records // batch_size)
    if num_records % batch_size:
        expected.append(num_records % batch_size)
    if not epoch.complete:
        expected = expected[: len(epoch.batch_sizes)]
    if epoch.batch_sizes != expected:
        raise ContentError(
            f"Expected {len(expected)} batches of {batch_size} (the last {expected[-1]}), "
            f"got {len(epoch.batch_sizes)} of sizes {sorted(set(epoch.batch_sizes))}."
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
    ordered: bool,
    max_seconds: float,
) -> None:
    """Compare every byte of an epoch with the source, until `max_seconds` have passed."""
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
    if ordered:
        if seen != (expected if complete else expected[: len(seen)]):
            raise ContentError("The images delivered are not the source's, in its order.")
    else:
        check_subset(Counter(seen), Counter(expected), complete)


def record_hashes(images: NDArray[Any], labels: NDArray[Any]) -> list[int]:
    """One number for each image and its label together."""
    pairs = zip(images, labels.tolist(), strict=True)
    return [hash((image.tobytes(), label)) for image, label in pairs]
