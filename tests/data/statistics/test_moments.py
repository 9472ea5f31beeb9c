"""Moments: exact, the same in any order and split, also where sums of squares would fail."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._data.statistics.moments import Moments, moments_of, no_moments

NUMBERS = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=60)


def of(*numbers: float) -> Moments:
    return moments_of(np.array(numbers).reshape(-1, 1))


@given(numbers=NUMBERS, cut=st.integers(0, 60))
def test_merged_moments_are_those_of_all_values(numbers: list[int], cut: int):
    values = np.array(numbers).reshape(-1, 1)

    merged = moments_of(values[:cut]).merge(moments_of(values[cut:]))

    mean = Fraction(sum(numbers), len(numbers))
    squares = sum((number - mean) ** 2 for number in numbers)
    assert merged.count.tolist() == [len(numbers)]
    assert merged.mean[0] == pytest.approx(float(mean), rel=1e-12, abs=1e-3)
    assert merged.squares[0] == pytest.approx(float(squares), rel=1e-9)
    assert merged.lows.tolist() == [min(numbers)]
    assert merged.highs.tolist() == [max(numbers)]


def test_a_small_spread_around_a_large_mean_keeps_its_digits():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((300_000, 1))

    moments = moments_of(noise + 1e9)

    # The difference of the mean square and the squared mean has no correct digit here.
    assert moments.std[0] == pytest.approx(noise.std(), rel=1e-6)


def test_many_single_values_merge_without_drift():
    values = 1e8 + np.arange(2000.0)
    total = no_moments(1)
    for value in values:
        total = total.merge(of(value))

    assert total.mean[0] == pytest.approx(values.mean(), rel=1e-15)
    assert total.std[0] == pytest.approx(values.std(), rel=1e-12)


@pytest.mark.parametrize("dtype", ["u1", "i8", "f2", "f4", "f8", "?"])
def test_every_type_of_number_is_summarised_and_not_changed(dtype: str):
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2 if dtype == "?" else 200, (1000, 3)).astype(dtype)
    before = values.copy()

    moments = moments_of(values)

    assert np.array_equal(values, before)
    numbers = values.astype(np.float64)
    assert moments.mean == pytest.approx(numbers.mean(axis=0))
    assert moments.std == pytest.approx(numbers.std(axis=0))
    assert moments.lows.tolist() == numbers.min(axis=0).tolist()
    assert moments.highs.tolist() == numbers.max(axis=0).tolist()


def test_one_channel_of_floats_is_not_changed():
    values = np.arange(5.0).reshape(-1, 1)
    moments_of(values)
    assert values.ravel().tolist() == [0, 1, 2, 3, 4]


def test_nan_and_infinite_values_are_counted_and_left_out_of_the_mean():
    moments = of(1.0, np.nan, 3.0, np.inf, -np.inf, np.nan)

    assert moments.mean.tolist() == [2.0]
    assert moments.std.tolist() == [1.0]
    assert moments.num_nan.tolist() == [2]
    assert moments.num_infinite.tolist() == [2]
    assert (moments.lows[0], moments.highs[0]) == (-np.inf, np.inf)


def test_without_a_number_there_is_no_range():
    moments = of(np.nan, np.nan)

    assert moments.lows.tolist() == moments.highs.tolist() == [None]
    assert np.isnan(moments.std[0])


def test_merging_with_nothing_changes_nothing():
    moments = of(1.0, 5.0)

    for merged in (moments.merge(no_moments(1)), no_moments(1).merge(moments)):
        assert merged.mean.tolist() == [3.0]
        assert merged.squares.tolist() == [8.0]
        assert merged.lows.tolist() == [1.0]


def test_a_sum_that_is_too_large_for_a_float_has_a_mean():
    assert of(1.5e308, 1.5e308).mean[0] == pytest.approx(1.5e308)


def test_bounds_of_large_integers_are_exact():
    moments = moments_of(np.array([[2**63 + 1], [2**64 - 1]], np.uint64))
    assert (moments.lows[0], moments.highs[0]) == (2**63 + 1, 2**64 - 1)


def test_several_chunks_are_one():
    values = np.random.default_rng(2).standard_normal((2**18 + 7, 2))
    assert moments_of(values).std == pytest.approx(values.std(axis=0), rel=1e-12)
