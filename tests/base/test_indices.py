from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._base.indices import as_indices


@given(start=st.integers(-50, 50), stop=st.integers(-50, 50), step=st.integers(-7, 7).filter(bool))
def test_any_range_becomes_the_array_of_its_numbers(start: int, stop: int, step: int):
    indices = as_indices(range(start, stop, step))

    assert indices.tolist() == list(range(start, stop, step))
    assert indices.dtype == np.int64


@pytest.mark.parametrize("span", [[], [3, 1], (2,), np.array([4, 5], np.uint8)], ids=repr)
def test_sequences_become_arrays_of_64_bit_integers(span: Any):
    indices = as_indices(span)

    assert indices.tolist() == list(span)
    assert indices.dtype == np.int64


def test_an_array_of_indices_is_not_copied():
    indices = np.array([3, 1])
    assert as_indices(indices) is indices
