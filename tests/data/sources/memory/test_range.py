import pickle
from typing import Any

import numpy as np
import pytest

from gristmill import RangeDataSource
from gristmill.errors import PlanError, PlanTypeError

RANGES = [
    (0, 10, 1),
    (0, 10, 3),
    (5, 5, 1),
    (10, 0, 1),
    (10, 0, -1),
    (10, 0, -3),
    (-7, 8, 4),
    (-(2**62), 2**62, 2**60),
]


@pytest.mark.parametrize("arguments", RANGES)
def test_its_records_are_the_integers_of_a_range(arguments: tuple[int, int, int]):
    source, expected = RangeDataSource(*arguments), range(*arguments)
    assert len(source) == len(expected)
    assert [source[index] for index in range(len(source))] == list(expected)


@pytest.mark.parametrize("arguments", RANGES)
def test_reading_many_records_equals_reading_them_one_by_one(arguments: tuple[int, int, int]):
    source = RangeDataSource(*arguments)
    indices = list(range(len(source)))[::-1] * 2
    assert source.__getitems__(indices) == [source[index] for index in indices]
    assert all(type(record) is int for record in source.__getitems__(indices))


@pytest.mark.parametrize(
    "indices", [range(5), range(1, 5, 2), range(0), range(4, -1, -1), range(3, 0, -2)]
)
def test_reading_a_range_of_records_equals_reading_them_one_by_one(indices: range):
    source = RangeDataSource(10, 20, 2)
    assert list(source.__getitems__(indices)) == [source[index] for index in indices]


@pytest.mark.parametrize("index", [-1, 5, 2**40])
def test_an_index_out_of_bounds_is_an_error(index: int):
    with pytest.raises(IndexError, match=rf"^`record_key` must be in \[0, 5\), got {index}\.$"):
        RangeDataSource(0, 5, 1)[index]


@pytest.mark.parametrize("indices", [[0, 5], [-1, 0], range(3, 6), range(-1, 2)], ids=repr)
def test_indices_out_of_bounds_are_an_error(indices: Any):
    with pytest.raises(IndexError, match=r"^`index` must be in \[0, 5\), got (5|-1)\.$"):
        RangeDataSource(0, 5, 1).__getitems__(indices)


def test_numpy_integers_are_integers():
    source = RangeDataSource(np.int64(0), np.uint8(10), np.int32(2))  # pyright: ignore[reportArgumentType]
    assert source[np.int64(1)] == 2
    assert repr(source) == "RangeDataSource(start=0, stop=10, step=2)"


@pytest.mark.parametrize("value", [1.0, "1", None, True, np.float64(1)], ids=repr)
@pytest.mark.parametrize("name", ["start", "stop", "step"])
def test_an_argument_that_is_not_an_integer_is_an_error_that_names_it(name: str, value: Any):
    arguments: dict[str, Any] = {"start": 0, "stop": 5, "step": 1, name: value}
    with pytest.raises(PlanTypeError, match=rf"^`{name}` must be an integer, got "):
        RangeDataSource(**arguments)


def test_a_step_of_zero_is_an_error():
    with pytest.raises(PlanError, match=r"^`step` must not be 0\. Use 1 to count up"):
        RangeDataSource(0, 5, 0)


def test_integers_past_64_bits_are_an_error_or_read_the_same_in_blocks():
    try:
        source = RangeDataSource(2**63, 2**63 + 5, 1)
    except PlanError:
        return
    assert source.__getitems__([1, 0]) == [source[1], source[0]]


def test_it_can_be_pickled():
    assert list(pickle.loads(pickle.dumps(RangeDataSource(3, 9, 3)))) == [3, 6]
