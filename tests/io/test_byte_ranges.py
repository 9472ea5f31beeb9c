"""Merged ranges cover the requested ranges, and splitting them returns the requested bytes."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gristmill._io.byte_ranges import merge_ranges, split_merged

DATA = random.Random(0).randbytes(300)
RANGES = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 300)).map(lambda ends: (min(ends), max(ends)))
)


@given(ranges=RANGES, max_gap=st.integers(0, 50))
def test_splitting_the_merged_ranges_returns_the_requested_bytes(
    ranges: list[tuple[int, int]], max_gap: int
):
    starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
    merged = merge_ranges(starts, stops, max_gap=max_gap)
    data = [DATA[a:b] for a, b in zip(merged.starts, merged.stops, strict=True)]

    expected = [DATA[start:stop] for start, stop in ranges]
    assert split_merged(merged, data, starts, stops) == expected
    assert split_merged(merged, data, np.array(starts, int), np.array(stops, int)) == expected


@given(ranges=RANGES, max_gap=st.integers(0, 50))
def test_merged_ranges_are_sorted_and_farther_apart_than_the_gap(
    ranges: list[tuple[int, int]], max_gap: int
):
    merged = merge_ranges(*zip(*ranges, strict=True), max_gap=max_gap) if ranges else None
    if merged is None:
        return

    for stop, start in zip(merged.stops, merged.starts[1:], strict=False):
        assert start - stop > max_gap


def test_a_range_inside_another_does_not_shorten_it():
    merged = merge_ranges([0, 10, 60], [50, 20, 70], max_gap=10)

    assert (merged.starts, merged.stops, merged.containers) == ([0], [70], [0, 0, 0])


def test_no_ranges_are_merged_to_none():
    assert merge_ranges([], [], max_gap=10) == ([], [], [])
    assert split_merged(merge_ranges([], [], max_gap=10), [], [], []) == []
