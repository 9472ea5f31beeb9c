"""Counts of distinct values, up to a limit."""

import random

from hypothesis import given
from hypothesis import strategies as st

from gristmill._data.statistics.categories import MAX_CATEGORIES, count_categories


@given(values=st.lists(st.integers(0, 5)), cut=st.integers(0, 20))
def test_merged_counts_are_those_of_all_values(values: list[int], cut: int):
    merged = count_categories(values[:cut]).merge(count_categories(values[cut:]))
    assert merged.counts == {value: values.count(value) for value in set(values)}


def test_too_many_values_have_no_counts_in_any_order():
    values = list(range(MAX_CATEGORIES + 1))
    random.Random(0).shuffle(values)

    total = count_categories([])
    for value in values[:-1]:
        total = total.merge(count_categories([value]))

    assert total.counts is not None
    assert total.merge(count_categories(values[-1:])).counts is None
    assert count_categories(values).counts is None
    assert count_categories(values).merge(count_categories([1])).counts is None


def test_long_strings_are_not_classes():
    assert count_categories(["a", "b" * 101]).counts is None
