import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

from gristmill._api.feeding.batch_shapes import LeafShape, dump_shapes, load_shapes, zeros_like
from gristmill.errors import FeedError


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, ">i4", "datetime64[s]", "U3", "complex64"])
def test_shapes_are_the_same_after_a_round_trip(dtype: Any):
    array = np.zeros((4, 2), dtype)
    shapes = {"x": LeafShape(array.shape, array.dtype, None), 3: [LeafShape(None, None, "name")]}
    made = zeros_like(load_shapes(dump_shapes(shapes)))
    assert made["x"].shape == (4, 2)
    assert made["x"].dtype == array.dtype
    assert made[3] == ["name"]


class Pair(NamedTuple):
    first: int


@pytest.mark.parametrize("tree", [Pair(1), {"x": object()}, {(1, 2): 3}])
def test_other_trees_are_an_error_of_the_process_that_needs_them(tree: Any):
    with pytest.raises(FeedError, match="must be dicts, lists or tuples"):
        load_shapes(dump_shapes(tree))


@pytest.mark.parametrize("text", ["", "[]", '{"array": [[4], "O" ]}x', '{"call": []}', "[" * 10**5])
def test_other_strings_are_an_error(text: str):
    with pytest.raises(FeedError):
        load_shapes(text)


def test_nothing_is_unpickled():
    with pytest.raises(FeedError):
        load_shapes(pickle.dumps({"x": 1}, protocol=0).decode())
