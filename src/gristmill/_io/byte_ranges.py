"""Merge many byte ranges of a file into a few longer ones, and split the data again."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gristmill.types import Indices

_NUM_SAMPLES = 16
_SAMPLE_BYTES = 4096


class MergedRanges(NamedTuple):
    """Byte ranges that cover a number of requested ranges."""

    starts: list[int]
    stops: list[int]
    containers: list[int]
    """For each requested range, the index of the merged range that contains it."""


def merge_ranges(
    starts: Sequence[int] | Indices, stops: Sequence[int] | Indices, *, max_gap: int
) -> MergedRanges:
    """Merge ranges with at most `max_gap` bytes between them. They may be in any order.

    >>> merge_ranges([0, 100, 10], [10, 110, 20], max_gap=5)
    MergedRanges(starts=[0, 100], stops=[20, 110], containers=[0, 1, 0])
    """
    first = np.asarray(starts, dtype=np.int64)
    last = np.asarray(stops, dtype=np.int64)
    if not len(first):
        return MergedRanges([], [], [])
    order = np.argsort(first, kind="stable")
    begins, ends = first[order], np.maximum.accumulate(last[order])
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = begins[1:] > ends[:-1] + max_gap
    heads = np.flatnonzero(is_new)
    containers = np.empty(len(order), dtype=np.int64)
    containers[order] = np.cumsum(is_new) - 1
    tails = np.append(heads[1:], len(order)) - 1
    return MergedRanges(begins[heads].tolist(), ends[tails].tolist(), containers.tolist())


def split_merged(
    merged: MergedRanges,
    data: Sequence[bytes],
    starts: Sequence[int] | Indices,
    stops: Sequence[int] | Indices,
) -> list[bytes]:
    """Return the bytes of each requested range, in the order of the request.

    Args:
        merged: The result of `merge_ranges(starts, stops)`.
        data: The bytes of each merged range.
        starts: The first byte of each requested range.
        stops: The end of each requested range, exclusive.

    >>> merged = merge_ranges([2, 0], [4, 1], max_gap=5)
    >>> split_merged(merged, [b"abcd"], [2, 0], [4, 1])
    [b'cd', b'a']
    """
    begins = merged.starts
    return [
        data[container][start - begins[container] : stop - begins[container]]
        for container, start, stop in zip(
            merged.containers, _as_ints(starts), _as_ints(stops), strict=True
        )
    ]


def _as_ints(numbers: Sequence[int] | Indices) -> Sequence[int]:
    return numbers.tolist() if isinstance(numbers, np.ndarray) else numbers


def sample_ranges(size: int) -> tuple[list[int], list[int]]:
    """Return ranges `[start, stop)` spread over a file, whose bytes stand for its content.

    >>> starts, stops = sample_ranges(10**6)
    >>> len(starts), starts[1], stops[1], stops[-1]
    (17, 62500, 66596, 1000000)
    """
    starts = sorted({size * number // _NUM_SAMPLES for number in range(_NUM_SAMPLES)})
    starts.append(max(0, size - _SAMPLE_BYTES))
    return starts, [min(start + _SAMPLE_BYTES, size) for start in starts]
