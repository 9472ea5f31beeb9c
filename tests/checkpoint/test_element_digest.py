"""The checksum of an element differs whenever its bytes do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._checkpoint.element_digest import element_digest

LARGE = np.random.default_rng(0).integers(0, 2**63, 200_000, dtype=np.int64)
"""Three tables of sums, and a remainder."""


@given(index=st.integers(0, len(LARGE) - 1), bit=st.integers(0, 63))
@settings(deadline=None, max_examples=50)
def test_each_bit_of_a_large_array_counts(index: int, bit: int):
    other = LARGE.view(np.uint64).copy()
    other[index] ^= np.uint64(1 << bit)

    assert element_digest(other.view(np.int64)) != element_digest(LARGE)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "sign": lambda array: -array,
    "order of rows": lambda array: array[::-1].copy(),
    "two rows": lambda array: array[[1, 0, *range(2, len(array))]],
    "shape": lambda array: array.reshape(-1),
    "dtype": lambda array: array.astype(array.dtype, copy=False).view(np.int64),
    "one item": lambda array: np.concatenate([array.ravel()[:-1], [7.5]]).reshape(array.shape),
    "shifted": lambda array: np.roll(array, 1),
    "another row": lambda array: np.concatenate([array[1:], array[:1]]),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("shape", [(4, 3), (64, 224, 28), (128, 1021), (130, 1021)])
def test_what_can_go_wrong_in_a_batch_counts(change: str, shape: tuple[int, ...]):
    batch = np.random.default_rng(1).normal(size=shape)

    assert element_digest(CHANGES[change](batch)) != element_digest(batch)


def test_the_memory_layout_does_not_count():
    batch = np.random.default_rng(1).normal(size=(300, 400))

    assert element_digest(np.asfortranarray(batch)) == element_digest(batch)
    assert element_digest({"a": batch, "b": [1, "x"]}) == element_digest(
        {"a": batch, "b": [1, "x"]}
    )


class Plain:
    pass


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"b": 1}),
        ([1, 2], [2, 1]),
        ("a", "b"),
        ("1", 1),
        (b"ab", b"ba"),
        (b"ab", "ab"),
        (1, 1.0),
        (True, 1),
        (np.array(["a", "b"], dtype=object), np.array(["a", "c"], dtype=object)),
        (np.array([b"a", b"b"]), np.array([b"a", b"c"])),
        (Plain(), 1),
        (np.float32(1), np.float64(1)),
    ],
)
def test_other_leaves_count(one: Any, other: Any):
    assert element_digest(one) != element_digest(other)


def test_objects_without_a_value_count_by_their_type():
    assert element_digest(Plain()) == element_digest(Plain())


def test_arrays_of_other_libraries_count_by_their_content():
    jnp = pytest.importorskip("jax.numpy")
    numbers = np.arange(5000, dtype=np.int32)
    changed = numbers.copy()
    changed[2500] = 0

    assert element_digest(jnp.asarray(numbers)) == element_digest(numbers)
    assert element_digest(jnp.asarray(changed)) != element_digest(numbers)
