"""Records are compared exactly, and all their arrays can be overwritten."""

import pickle
from typing import Any

import numpy as np
import pytest

from gristmill.testing._records import difference, overwrite
from tests.testing.record_samples import RECORDS, Plain, Point


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_equals_its_copy(record: Any):
    assert difference(record, pickle.loads(pickle.dumps(record))) is None


DIFFERENT: list[Any] = [
    None,
    {},
    {"a": 1},
    {"b": 1},
    {"b": 1.0},
    {"b": True},
    {"b": np.int64(1)},
    {"b": np.int32(1)},
    {"b": np.array(1, np.int32)},
    {"b": np.array([1], np.int32)},
    {"b": np.array([[1]], np.int32)},
    {"b": np.array([[2]], np.int32)},
    {"b": np.array([[2]], ">i4")},
    [2, 3],
    [3, 2],
    (3, 2),
    Point(3, 2),
    "text",
    b"text",
    np.array([0.0]),
    np.array([-0.0]),
    np.array([(0, 1.5)], [("a", "i1"), ("b", "f8")]),
    np.array([(0, 1.0)], [("a", "i1"), ("b", "f8")]),
    np.array([{1}, None], dtype=object),
    np.array([{2}, None], dtype=object),
    Plain(1),
    Plain(2),
]


@pytest.mark.parametrize("index", range(len(DIFFERENT) - 1))
def test_records_differ_in_containers_types_shapes_and_bits(index: int):
    one, other = DIFFERENT[index : index + 2]
    assert difference(one, other) is not None
    assert difference(other, one) is not None


def test_a_difference_is_described_with_its_path_and_shortened():
    found = difference({"x": [1, "a"]}, {"x": [1, "b" * 100]})
    assert found == f"""record["x"][1] is '{"b" * 76}..., expected 'a'"""
    assert difference({"x": 1}, {}) == 'record has nothing, expected ["x"]'


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 0)),
        np.array(True),
        np.array([1.5, float("nan")]),
        np.arange(12).reshape(3, 4)[::2, ::-1],
        np.array(["a", ""]),
        np.array([{1}], dtype=object),
        np.array([({1}, 2)], [("a", "O"), ("b", "i1")]),
        np.array(["a", "bc"], np.dtypes.StringDType()),
        np.arange(3).astype("datetime64[s]"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_overwriting_changes_every_array_that_is_not_empty(array: Any):
    before = array.copy()
    overwrite({"x": [array]})
    assert (difference(before, array) is None) == (array.size == 0)


def test_overwriting_does_not_change_read_only_arrays():
    array = np.arange(3)
    array.flags.writeable = False
    overwrite(array)
    assert array.tolist() == [0, 1, 2]
