"""Histograms do not depend on the order or on the split of their values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._data.statistics.histogram import MAX_BINS, Histogram, histogram_of

FLOATS = st.lists(
    st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-50, 50).map(float)),
    min_size=2,
    max_size=50,
)


def as_tuple(histogram: Histogram) -> tuple[object, ...]:
    return (histogram.low, histogram.high, histogram.edges.tolist(), histogram.counts.tolist())


@given(numbers=FLOATS, data=st.data())
def test_merged_histograms_are_that_of_all_values(numbers: list[float], data: st.DataObject):
    cut = data.draw(st.integers(1, len(numbers) - 1))
    values = np.array(numbers)

    merged = histogram_of(values[:cut]).merge(histogram_of(values[cut:]))

    assert as_tuple(merged) == as_tuple(histogram_of(values))
    assert as_tuple(merged) == as_tuple(histogram_of(values[::-1]))


@given(numbers=FLOATS)
def test_every_value_is_in_its_bin(numbers: list[float]):
    values = np.array(numbers)

    histogram = histogram_of(values)

    assert len(histogram.counts) <= MAX_BINS
    assert histogram.counts.sum() == len(values)
    if histogram.low < histogram.high:
        edges = histogram.edges
        assert edges[0] <= histogram.low
        if np.isfinite(edges[-1]):
            assert np.histogram(values, edges)[0].tolist() == histogram.counts.tolist()


def test_the_whole_range_of_floats():
    histogram = histogram_of(np.array([-1.7e308, 0.0, 1.7e308]))
    assert histogram.counts.sum() == 3


@pytest.mark.parametrize("value", [0.0, -3.5, 1e300])
def test_equal_values_are_one_bin(value: float):
    histogram = histogram_of(np.array([value] * 4))
    assert histogram.counts.tolist() == [4]
    assert histogram.edges.tolist() == [value, value]
