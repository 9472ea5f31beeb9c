import pickle
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from gristmill import ArraySource, Batch, DataLoader, SequentialSampler
from gristmill.errors import PlanError, PlanTypeError


class Pair(NamedTuple):
    x: Any
    y: Any


def batches_of(source: Any, size: int) -> list[Any]:
    loader = DataLoader(
        data_source=source, sampler=SequentialSampler(len(source)), operations=[Batch(size)]
    )
    return list(loader)


def test_a_record_of_a_dict_is_a_dict():
    source = ArraySource({"x": np.arange(6).reshape(3, 2), "y": np.arange(3)})
    assert len(source) == 3
    assert source[2]["x"].tolist() == [4, 5]
    assert source[2]["y"] == 2


def test_a_record_of_a_tuple_is_a_tuple():
    source = ArraySource((np.arange(3), np.arange(3) * 10))
    assert source[1] == (1, 10)


def test_a_record_of_a_named_tuple_is_a_named_tuple():
    assert ArraySource(Pair(np.arange(3), np.arange(3)))[1] == Pair(1, 1)


def test_a_record_of_a_single_array_is_its_item():
    assert ArraySource(np.array([5, 6]))[1] == 6


def test_trees_may_be_nested_and_hold_none():
    source = ArraySource({"a": (np.arange(2), {"b": np.arange(2)}), "c": None})
    assert source[1] == {"a": (1, {"b": 1}), "c": None}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.uint8).reshape(6, 2),
        np.asfortranarray(np.arange(12.0).reshape(6, 2)),
        np.arange(24).reshape(12, 2)[::-2],
        np.arange(6, dtype=np.float16),
        np.arange(6) > 2,
        np.arange(6).astype("datetime64[s]"),
        np.arange(6, dtype=">f4"),
        np.array(["a", "bc", "", "def", "g", "h"]),
        np.array([b"a", b"bc", b"", b"def", b"g", b"h"]),
        np.array([{1}, {2}, {3}, {4}, {5}, {6}], dtype=object),
        np.array([(i, i / 2) for i in range(6)], dtype=[("a", "i4"), ("b", "f8")]),
        np.zeros((6, 0), np.int32),
    ],
    ids=lambda array: str(array.dtype),
)
def test_batches_equal_its_stacked_records(array: Any):
    source = ArraySource({"x": array})
    for batch, start in zip(batches_of(source, 4), (0, 4), strict=True):
        expected = np.stack([source[i]["x"] for i in range(start, min(start + 4, 6))])
        assert batch["x"].dtype == expected.dtype
        np.testing.assert_array_equal(batch["x"], expected)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_batches_of_a_memory_mapped_array_are_plain_copies(tmp_path: Path, mode: Any):
    path = tmp_path / "records.npy"
    np.save(path, np.arange(12).reshape(6, 2))
    before = path.read_bytes()
    for batch in batches_of(ArraySource({"x": np.load(path, mmap_mode=mode)}), 4):
        assert type(batch["x"]) is np.ndarray
        batch["x"][:] = -1
    assert path.read_bytes() == before
    assert np.load(path).tolist() == np.arange(12).reshape(6, 2).tolist()


def test_building_it_reads_no_record(tmp_path: Path):
    path = tmp_path / "hole.bin"
    with path.open("wb") as file:
        file.truncate(10_000_000_000)  # a sparse file: reading all of it would take minutes
    source = ArraySource(np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, 1000))
    assert len(source) == 10_000_000
    assert source[9_999_999].sum() == 0


def test_jax_arrays_are_accepted():
    assert ArraySource({"x": jnp.arange(3)})[2] == {"x": 2}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(3, 2),
        np.zeros((3, 2), dtype=[("a", "i4")]),
        np.array([["a", "b"]] * 3),
    ],
    ids=lambda array: f"{array.dtype}{array.ndim}",
)
def test_a_record_is_not_a_view_of_the_array(array: Any):
    source = ArraySource(array)
    before = array.copy()
    source[0][...] = 7
    np.testing.assert_array_equal(array, before)


def test_a_structured_record_is_not_a_view_of_the_array():
    array = np.zeros(3, dtype=[("a", "i4")])
    ArraySource(array)[0]["a"] = 7
    assert array["a"].tolist() == [0, 0, 0]


def test_a_masked_array_is_an_error_as_its_mask_would_be_lost():
    with pytest.raises(PlanError, match="mask"):
        ArraySource({"x": np.ma.array([1, 2], mask=[True, False])})


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_out_of_bounds_is_an_error(index: int):
    with pytest.raises(IndexError, match=rf"^`index` must be in \[0, 3\), got {index}\.$"):
        ArraySource(np.arange(3))[index]


def test_numpy_integers_are_indices():
    assert ArraySource(np.arange(3))[np.uint8(2)] == 2


def test_different_lengths_are_an_error_that_names_the_leaves():
    expected = 'got arrays["x"]: 3, arrays["y"][0]: 4.'
    with pytest.raises(
        PlanError, match=f"one common length along the first axis, {re.escape(expected)}"
    ):
        ArraySource({"x": np.zeros(3), "y": [np.zeros(4)]})


@pytest.mark.parametrize("scalar", [np.array(1), np.float32(1), jnp.array(1)], ids=repr)
def test_an_array_without_axes_is_an_error(scalar: Any):
    message = r'^`arrays\["x"\]` must have a first axis that counts the records, got a scalar\.$'
    with pytest.raises(PlanError, match=message):
        ArraySource({"x": scalar})


@pytest.mark.parametrize("leaf", [1, "abc", 1.5, object(), {1, 2}])
def test_a_leaf_that_is_not_an_array_is_an_error(leaf: Any):
    kind = type(leaf).__name__
    with pytest.raises(
        PlanTypeError, match=rf'^`arrays\["x"\]` must be an array, got {kind}\. Use'
    ):
        ArraySource({"x": leaf})


@pytest.mark.parametrize("nothing", [{}, (), None, {"x": None}])
def test_a_tree_without_arrays_is_an_error(nothing: Any):
    with pytest.raises(PlanError, match=r"^`arrays` must hold at least one array, got "):
        ArraySource(nothing)


def test_its_repr_describes_the_shape_of_the_data_and_not_the_data():
    source = ArraySource({"x": np.zeros((3, 2), np.uint8), "y": np.zeros(3)})
    assert repr(source) == 'ArraySource(<3 records>, ["x"]: uint8[2], ["y"]: float64[])'


def test_it_can_be_pickled():
    source = pickle.loads(pickle.dumps(ArraySource({"x": np.arange(3)})))
    assert [source[i]["x"] for i in range(3)] == [0, 1, 2]
