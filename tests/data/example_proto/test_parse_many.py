"""Packed numbers of many messages are parsed together, with a mark for those that are valid."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gristmill._data.example_proto.parse_many import find_features, parse_floats, parse_integers
from gristmill._data.example_proto.serialize import format_example


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=6))
def test_lists_of_integers_are_valid_if_their_length_and_values_fit(lists: list[list[int]]):
    stored = [pack(values) for values in lists]

    values, is_valid = parse_integers(stored, (2,), np.dtype(np.int16))

    fits = [len(one) == 2 and all(-(2**15) <= n < 2**15 for n in one) for one in lists]
    assert is_valid.tolist() == fits
    assert values[is_valid].tolist() == [one for one, fit in zip(lists, fits, strict=True) if fit]


def pack(values: list[int]) -> bytes:
    """Return integers as they are packed in a message."""
    if not values:
        return b""
    found = find_features([format_example({"x": values})], ["x"])
    assert found.is_whole.all()
    return found.values(np.array([0]), 0)[0]


def test_lists_of_floats_are_valid_if_their_length_fits():
    stored = [np.array(values, "<f4").tobytes() for values in ([1, 2], [3], [4, 5])]

    values, is_valid = parse_floats(stored, (2,), np.dtype(np.float64))

    assert is_valid.tolist() == [True, False, True]
    assert values[is_valid].tolist() == [[1, 2], [4, 5]]
