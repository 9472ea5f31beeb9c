"""Many pieces of a file as few longer runs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gristmill.types import Indices


class Runs(NamedTuple):
    """Runs of bytes that hold all pieces, and which piece lies in which."""

    starts: list[int]
    stops: list[int]
    homes: list[int]
    """For each piece the run it lies in."""


def merge(starts: Sequence[int] | Indices, stops: Sequence[int] | Indices, *, gap: int) -> Runs:
    """Join pieces with at most `gap` bytes between them, wherever they stand in the list.

    >>> merge([0, 100, 10], [10, 110, 20], gap=5)
    Runs(starts=[0, 100], stops=[20, 110], homes=[0, 1, 0])
    """
    first = np.asarray(starts, dtype=np.int64)
    last = np.asarray(stops, dtype=np.int64)
    if not len(first):
        return Runs([], [], [])
    order = np.argsort(first, kind="stable")
    begins, ends = first[order], np.maximum.accumulate(last[order])
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = begins[1:] > ends[:-1] + gap
    heads = np.flatnonzero(is_new)
    homes = np.empty(len(order), dtype=np.int64)
    homes[order] = np.cumsum(is_new) - 1
    tails = np.append(heads[1:], len(order)) - 1
    return Runs(begins[heads].tolist(), ends[tails].tolist(), homes.tolist())


def cut(
    runs: Runs,
    data: Sequence[bytes],
    starts: Sequence[int] | Indices,
    stops: Sequence[int] | Indices,
) -> list[bytes]:
    """Give the pieces that were asked for, from the bytes of the runs.

    >>> runs = merge([2, 0], [4, 1], gap=5)
    >>> cut(runs, [b"abcd"], [2, 0], [4, 1])
    [b'cd', b'a']
    """
    begins = runs.starts
    return [
        data[home][start - begins[home] : stop - begins[home]]
        for home, start, stop in zip(runs.homes, _ints(starts), _ints(stops), strict=True)
    ]


def _ints(numbers: Sequence[int] | Indices) -> Sequence[int]:
    return numbers.tolist() if isinstance(numbers, np.ndarray) else numbers
