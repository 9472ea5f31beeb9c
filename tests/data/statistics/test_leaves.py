"""Records as columns: nested, ragged, of changing types."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from gristmill._base.trees.columns import Columns
from gristmill._data.statistics.kinds import sort_values
from gristmill._data.statistics.leaves import columns_of, columns_of_arrays

Point = namedtuple("Point", "x y")


def shown(records: Any) -> dict[str, Any]:
    return {
        path: [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
        for path, values in columns_of(records).items()
    }


def test_nested_dicts_and_tuples_have_paths():
    assert shown([{"a": {"b": 1}, "c": Point(2, "z")}]) == {
        'a["b"]': [1],
        "c.x": [2],
        "c.y": ["z"],
    }


def test_ragged_lists_are_arrays_of_several_lengths():
    assert shown([{"t": [1, 2]}, {"t": [3]}, {"t": []}]) == {"t": [[1, 2], [3], []]}


def test_items_of_lists_have_a_column_of_their_own():
    assert shown([{"t": [{"x": 1}, {"x": None}]}, {"t": [[1, 2], [3]]}]) == {
        "t": [[{"x": 1}, {"x": None}], [[1, 2], [3]]],
        't[*]["x"]': [1, None],
        "t[*]": [[1, 2], [3]],
    }


def test_nulls_and_keys_that_are_not_strings():
    assert shown([{1: None}, {1: 2}]) == {"1": [None, 2]}


def test_the_columns_of_a_source_have_the_same_paths():
    tree = {"a": {"b": np.arange(4)}, "s": np.array(["x", "y", "x", "z"], object)}

    found = columns_of_arrays(Columns.of(tree, range(1, 3)))

    assert {path: list(column) for path, column in found.items()} == {
        'a["b"]': [1, 2],
        "s": ["y", "x"],
    }
    assert list(columns_of_arrays(Columns.of(np.arange(3), range(2)))) == ["record"]


def test_values_are_sorted_by_kind():
    values = sort_values(
        [True, 2, 0.5, np.float32(1), np.zeros(3), None, "s", b"b", [1], 10**400, 1j, object]
    )

    assert sorted(array.dtype.str for array in values.arrays) == ["<f4", "<f8", "<f8", "<f8", "|b1"]
    assert (values.num_null, values.strings, values.blobs) == (1, ["s"], [b"b"])
    assert len(values.lists) == 1
    assert values.objects == [1j, object]


def test_integers_beyond_64_bits_are_floats():
    (array,) = sort_values([10**30, 1]).arrays
    assert array.tolist() == [1e30, 1.0]


def test_large_arrays_are_not_copied():
    large = np.zeros((200, 200))
    (array,) = sort_values([large]).arrays
    assert np.shares_memory(array, large)


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([b"a"])])
def test_numpy_strings_are_strings(value: np.ndarray):
    values = sort_values(list(value))
    assert [*values.strings, *(blob.decode() for blob in values.blobs)] == ["a"]
