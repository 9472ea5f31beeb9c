"""Leaves that JAX supports, their dtypes, and those that it does not support."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import gristmill as gm
from gristmill.errors import FeedError
from tests.api.feeding.batches import EACH_PREFETCH, UNSUPPORTED, first, lists, numbers, of


@pytest.mark.parametrize(
    ("leaf", "dtype"),
    [
        (np.array([1, 2], np.int64), "int32"),
        (np.array([1, 2], np.uint64), "uint32"),
        (np.array([-(2**31), 2**31 - 1]), "int32"),
        (np.array([], np.int64), "int32"),
        (np.array([1, 2], np.uint8), "uint8"),
        (np.array([1.5, 2.5]), "float32"),
        (np.array([1.5, 2.5], np.float16), "float16"),
        (np.array([1, 2], ml_dtypes.bfloat16), "bfloat16"),
        (np.array([1, 2], ml_dtypes.float8_e4m3fn), "float8_e4m3fn"),
        (np.array([1j]), "complex64"),
        (np.array([True, False]), "bool"),
        (np.array([1, 258], ">i2"), "int16"),
        (np.array([1, 258], ">i8"), "int32"),
        (np.array([1.5, 3.25], ">f4"), "float32"),
        (np.arange(12)[::3], "int32"),
        (np.ones((3, 4), np.float32).T, "float32"),
        (np.int64(7), "int32"),
        (np.float32(1.5), "float32"),
        (3, "int32"),
        (1.5, "float32"),
        (True, "bool"),
        (1j, "complex64"),
        (jnp.arange(3), "int32"),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', value)!s}",
)
def test_numbers_of_every_kind_become_arrays(leaf: Any, dtype: str):
    array = first(of({"x": leaf}))["x"]

    assert isinstance(array, jax.Array)
    assert array.dtype == dtype
    assert array.shape == np.shape(leaf)
    native = np.asarray(leaf)
    if not native.dtype.isnative:
        native = native.astype(native.dtype.newbyteorder("="))
    np.testing.assert_array_equal(np.asarray(array), native.astype(array.dtype))


@EACH_PREFETCH
@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_an_unsupported_leaf_raises_an_error_that_names_it(kind: str, prefetch: int):
    batch = {"x": np.ones(2), "meta": [np.ones(1), UNSUPPORTED[kind]]}

    with pytest.raises(
        FeedError, match=r"batch\['meta'\]\[1\] is .*JAX does not support.*unsupported"
    ):
        first(of(batch), prefetch=prefetch)


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_an_unsupported_leaf_is_passed_through_on_request(kind: str):
    leaf = UNSUPPORTED[kind]

    batch = first(of({"x": np.ones(2), "meta": [leaf]}), unsupported="pass")

    assert batch["meta"][0] is leaf
    assert isinstance(batch["x"], jax.Array)


def test_strings_are_passed_through_beside_padded_rows():
    ds = numbers(3).map(lambda x: {"x": x, "name": str(x)}).batch(2)

    with gm.feed(ds, remainder="pad", unsupported="pass") as iterator:
        batches = list(iterator)

    assert [batch["name"].tolist() for batch in batches] == [["0", "1"], ["2"]]
    assert lists(batch["x"] for batch in batches) == [[0, 1], [2, 0]]


@EACH_PREFETCH
@pytest.mark.parametrize(
    "leaf",
    [np.array([1, 2**40]), np.int64(2**40), 2**40, -(2**40), np.array([2**40, 1], ">u8")],
    ids=["array", "scalar", "int", "negative_int", "big_endian"],
)
def test_an_integer_that_does_not_fit_raises_an_error_that_names_it(leaf: Any, prefetch: int):
    with pytest.raises(FeedError, match=rf"batch\['id'\] contains -?{2**40}, .*int32.*enable_x64"):
        first(of({"id": leaf}), prefetch=prefetch)


@EACH_PREFETCH
def test_with_64_bits_enabled_such_integers_are_fed_in_any_thread(prefetch: int):
    batch = {"id": np.array([2**40]), "int": 2**40, "f": np.array([0.1]), "x": np.ones(1, ">f8")}

    with jax.enable_x64(True):
        iterator = gm.feed(of(batch), prefetch=prefetch)
        fed = next(iterator)
    iterator.close()

    assert {key: leaf.dtype.name for key, leaf in fed.items()} == {
        "id": "int64",
        "int": "int64",
        "f": "float64",
        "x": "float64",
    }
    assert np.asarray(fed["id"]).tolist() == [2**40]
    assert np.asarray(fed["f"]).tolist() == [0.1]
