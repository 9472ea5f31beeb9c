import re
from typing import Any

import numpy as np
import pytest

from gristmill._base.indices import check_index, check_indices


class Two:
    def __index__(self) -> int:
        return 2


@pytest.mark.parametrize(
    "index",
    [2, np.int64(2), np.uint64(2), np.int8(2), Two()],
    ids=lambda index: type(index).__name__,
)
def test_any_integer_in_bounds_is_returned_as_an_int(index: Any):
    assert type(check_index(index, 3)) is int
    assert check_index(index, 3) == 2


@pytest.mark.parametrize("index", [-1, 3, 2**70, np.int64(-1), np.uint64(2**63)], ids=repr)
def test_an_index_out_of_bounds_is_an_error_with_the_index_and_the_bounds(index: Any):
    with pytest.raises(IndexError, match=rf"^`index` must be in \[0, 3\), got {int(index)}\.$"):
        check_index(index, 3)


def test_nothing_is_in_the_bounds_of_an_empty_sequence():
    with pytest.raises(IndexError, match=re.escape("`index` must be in [0, 0), got 0.")):
        check_index(0, 0)


def test_the_error_names_the_argument_of_the_caller():
    with pytest.raises(IndexError, match=r"^`record_key` must be"):
        check_index(5, 3, name="record_key")


@pytest.mark.parametrize("index", [1.0, "1", None, np.float64(1)], ids=repr)
def test_an_index_that_is_not_an_integer_is_an_error(index: Any):
    with pytest.raises(TypeError, match="integer"):
        check_index(index, 3)


@pytest.mark.parametrize(
    "indices",
    [range(3), range(2, -1, -1), range(0), range(7, 7), np.array([2, 0, 1]), np.array([], int)],
    ids=repr,
)
def test_indices_in_bounds_and_no_indices_pass(indices: Any):
    check_indices(indices, 3)


@pytest.mark.parametrize(
    ("indices", "first_out_of_bounds"),
    [
        (range(1, 4), 3),
        (range(3, -1, -1), 3),
        (range(1, -3, -1), -2),
        (range(-1, 2), -1),
        (np.array([0, 3, 1]), 3),
        (np.array([2, -4, 0]), -4),
        (np.array([9, -4]), -4),
    ],
    ids=repr,
)
def test_one_index_out_of_bounds_among_many_is_an_error(indices: Any, first_out_of_bounds: int):
    with pytest.raises(IndexError, match=rf"\[0, 3\), got {first_out_of_bounds}\.$"):
        check_indices(indices, 3)
