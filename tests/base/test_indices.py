from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._base.indices import as_indices, exact_up_to, join_epochs, scale, split_epochs

huge = st.integers(-(2**70), 2**70) | st.sampled_from(
    [
        sign * 2**power + by
        for power in (31, 32, 53, 62, 63, 64)
        for by in (-1, 0, 1)
        for sign in (-1, 1)
    ]
)
lengths = st.integers(1, 50) | st.sampled_from([2**31, 2**53 + 1, 2**62, 2**63 - 1])


def is_64_bit(values: list[int]) -> bool:
    return all(-(2**63) < value < 2**63 for value in values)


@given(start=st.integers(-50, 50), stop=st.integers(-50, 50), step=st.integers(-7, 7).filter(bool))
def test_any_range_becomes_the_array_of_its_numbers(start: int, stop: int, step: int):
    indices = as_indices(range(start, stop, step))

    assert indices.tolist() == list(range(start, stop, step))
    assert indices.dtype == np.int64


@given(
    start=huge,
    count=st.integers(0, 4),
    step=st.sampled_from([1, 2, -1, 2**31, 2**61, -(2**62), 2**64]),
)
def test_any_range_of_huge_numbers_becomes_the_array_of_its_numbers(
    start: int, count: int, step: int
):
    span = range(start, start + count * step, step)

    assert as_indices(span).tolist() == list(span)


@pytest.mark.parametrize("span", [[], [3, 1], (2,), np.array([4, 5], np.uint8)], ids=repr)
def test_sequences_become_arrays_of_64_bit_integers(span: Any):
    indices = as_indices(span)

    assert indices.tolist() == list(span)
    assert indices.dtype == np.int64


@given(values=st.lists(huge, max_size=5))
def test_numbers_are_python_integers_only_if_64_bits_are_too_few(values: list[int]):
    indices = as_indices(values)

    assert indices.tolist() == values
    assert (indices.dtype == np.int64) or not is_64_bit(values)
    assert as_indices(np.array(values, dtype=object)).dtype == indices.dtype


def test_unsigned_numbers_do_not_wrap():
    assert as_indices(np.array([1, 2**63], np.uint64)).tolist() == [1, 2**63]
    assert as_indices(np.array([1, 2], np.uint64)).dtype == np.int64


def test_an_array_of_indices_is_not_copied():
    indices = np.array([3, 1])
    assert as_indices(indices) is indices


@given(values=st.lists(huge, max_size=5), length=lengths)
def test_indices_are_split_into_epoch_and_offset_and_joined_again(values: list[int], length: int):
    epochs, offsets = split_epochs(as_indices(values), length)

    assert epochs.tolist() == [value // length for value in values]
    assert offsets.tolist() == [value % length for value in values]
    assert offsets.dtype == np.int64
    assert join_epochs(epochs, offsets, length, bound=length).tolist() == values


@given(
    rows=st.lists(st.tuples(huge, st.integers(0, 2**62), lengths), max_size=5),
)
def test_epochs_of_different_lengths_are_joined_exactly(rows: list[tuple[int, int, int]]):
    epochs, offsets, each = (as_indices([row[column] for row in rows]) for column in range(3))
    bound = max([1, *(max(offset + 1, length) for _, offset, length in rows)])

    joined = join_epochs(epochs, offsets, each, bound=bound)

    assert joined.tolist() == [epoch * length + offset for epoch, offset, length in rows]


@given(values=st.lists(huge, max_size=5), factor=st.sampled_from([1, 2, 3, 1000, 2**40]))
def test_indices_are_scaled_exactly(values: list[int], factor: int):
    scaled = scale(as_indices(values), factor, factor - 1)

    assert scaled.tolist() == [value * factor + factor - 1 for value in values]


@given(values=st.lists(huge, min_size=1, max_size=5), largest=st.integers(0, 2**63))
def test_numbers_above_a_bound_become_python_integers(values: list[int], largest: int):
    exact = exact_up_to(as_indices(values), largest)

    assert exact.tolist() == values
    if exact.dtype == np.int64:
        assert max(map(abs, values)) <= largest


def test_numbers_of_common_size_stay_64_bit_integers():
    indices = np.arange(1000)
    epochs, offsets = split_epochs(indices, 300)
    for result in (
        epochs,
        offsets,
        join_epochs(epochs, offsets, 10**9, bound=10**9),
        scale(indices, 1000, 7),
        exact_up_to(-indices, 999),
    ):
        assert result.dtype == np.int64
