"""Columns: slicing is lazy, gathering copies, and ragged columns fall back to rows."""

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._base.trees.columns import (
    Columns,
    RaggedError,
    as_numpy_index,
    is_columnar,
    split_rows,
)
from gristmill.types import Span

ARRAYS = hnp.arrays(
    st.sampled_from([np.uint8, np.float32, "M8[s]"]),
    st.tuples(st.integers(1, 9), st.integers(0, 3)),
    elements={"allow_nan": False},
)


class RaggedColumn:
    """A column of lists that is only converted to an array on request."""

    dtype = np.dtype(np.int64)
    shape = (4, 2)
    is_list = True
    has_own_items = False

    def __init__(self, lists: list[list[int]]) -> None:
        self._lists = lists

    def gather(self, indices: Span, allocate: Any, /) -> Any:
        if any(len(self._lists[index]) != 2 for index in indices):
            raise RaggedError
        out = allocate((len(indices), 2), self.dtype)
        out[:] = [self._lists[index] for index in indices]
        return out

    def items(self, indices: Span, /) -> list[Any]:
        return [np.array(self._lists[index]) for index in indices]


@st.composite
def spans(draw: st.DrawFn, length: int) -> Span:
    """Draw indices of an array: a range, forwards or backwards, or an array in any order."""
    if draw(st.booleans()):
        step = draw(st.integers(-3, 3).filter(bool))
        first, last = sorted(draw(st.tuples(*[st.integers(0, length - 1)] * 2)))
        return range(first, last + 1, step) if step > 0 else range(last, first - 1, step)
    return np.array(draw(st.lists(st.integers(0, length - 1))), np.int64)


@given(data=st.data(), array=ARRAYS)
def test_gathering_equals_indexing(data: st.DataObject, array: Any):
    indices = data.draw(spans(len(array)))

    gathered = Columns.of({"x": array}, indices).gather()["x"]

    expected = array[np.array(indices, np.int64)]
    np.testing.assert_array_equal(gathered, expected)
    assert gathered.dtype == expected.dtype
    assert not np.shares_memory(gathered, array)


@given(data=st.data(), array=ARRAYS)
def test_rows_are_the_items_of_the_gathered_arrays(data: st.DataObject, array: Any):
    columns = Columns.of((array, None), data.draw(spans(len(array))))

    rows = columns.rows()

    assert len(rows) == len(columns)
    for (row, nothing), expected in zip(rows, columns.gather()[0], strict=True):
        np.testing.assert_array_equal(row, expected)
        assert nothing is None


@given(data=st.data(), array=ARRAYS)
def test_a_slice_of_columns_is_a_slice_of_their_elements(data: st.DataObject, array: Any):
    columns = Columns.of(array, data.draw(spans(len(array))))
    key = data.draw(st.slices(len(columns)))

    np.testing.assert_array_equal(columns[key].gather(), columns.gather()[key])


@given(data=st.data(), length=st.integers(1, 9))
def test_a_range_and_its_array_are_the_same_index(data: st.DataObject, length: int):
    indices = data.draw(spans(length))

    picked = np.arange(length)[as_numpy_index(indices)]

    assert picked.tolist() == list(indices)


def test_rows_of_new_arrays_are_not_copied():
    array = np.arange(12).reshape(4, 3)
    columns = Columns.of_new({"x": array})[1:3]
    rows: Any = columns.rows()
    assert [row["x"].tolist() for row in rows] == [[3, 4, 5], [6, 7, 8]]
    assert all(np.shares_memory(row["x"], array) for row in rows)
    gathered: Any = columns.gather()
    assert not np.shares_memory(gathered["x"], array)


def test_objects_are_copied_even_from_a_slice():
    strings = np.array(["a", "b", "c"], object)
    columns = Columns.of(strings, range(2))

    gathered = columns.gather()
    gathered[0] = "changed"

    assert columns.holds_objects
    assert strings.tolist() == ["a", "b", "c"]


def test_the_allocator_is_called_with_the_shape_and_the_dtype():
    requested: list[Any] = []

    def allocate(shape: Any, dtype: Any) -> Any:
        requested.append((shape, dtype))
        return np.empty(shape, dtype)

    Columns.of({"x": np.zeros((5, 3), np.float32)}, range(2)).gather(allocate)

    assert requested == [((2, 3), np.float32)]


def test_a_lazy_column_is_gathered_on_request():
    columns = Columns.of({"x": RaggedColumn([[1, 2], [3, 4], [5], [6, 7]])}, np.array([3, 0]))

    assert columns.gather()["x"].tolist() == [[6, 7], [1, 2]]


def test_a_ragged_column_is_an_error_to_gather_but_not_to_split_into_rows():
    tree = {"x": RaggedColumn([[1, 2], [3, 4], [5], [6, 7]]), "y": np.arange(4)}
    columns = Columns.of(tree, range(1, 3))

    with pytest.raises(RaggedError):
        columns.gather()
    rows = columns.rows()
    assert [(row["x"].tolist(), int(row["y"])) for row in rows] == [([3, 4], 1), ([5], 2)]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("i4", True), ("M8[s]", True), ("c8", True), (">i4", False), ("U3", False), (object, False)],
)
def test_only_native_numbers_and_times_are_columnar(dtype: Any, expected: bool):
    assert is_columnar({"x": np.zeros(2, dtype), "y": np.zeros(2)}) is expected


def test_a_tree_without_arrays_is_split_into_as_many_rows_as_requested():
    assert split_rows({"x": None, "y": ()}, 3) == [{"x": None, "y": ()}] * 3
