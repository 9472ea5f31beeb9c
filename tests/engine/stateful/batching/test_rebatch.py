"""`RebatchIterDataset`: the rows of batches, cut again."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.errors import BatchError, PlanError
from tests.compat.both_sides import STEADY, assert_resumes, assert_same_stream, ours, take
from tests.compat.stream_trees import numbers, streams

KINDS: dict[str, Any] = {
    "number": lambda x: x,
    "dict": lambda x: {"b": np.full(3, x, np.int16), "a": np.float32(x)},
    "nested": lambda x: (x, {"y": [np.array([x, x], np.uint8)], "x": np.float64(x)}),
}


def _rebatched(api: Any, count: int, size: int, other: int, drop: bool, kind: str) -> Any:
    batches = numbers(api, count).map(KINDS[kind]).batch(size)
    return streams(api).RebatchIterDataset(batches, other, drop_remainder=drop)


@STEADY
@given(
    count=st.integers(0, 30),
    size=st.integers(1, 9),
    other=st.integers(1, 12),
    drop=st.booleans(),
    kind=st.sampled_from(list(KINDS)),
)
def test_rebatches_as_grain_does(count: int, size: int, other: int, drop: bool, kind: str):
    assert_same_stream(lambda api: _rebatched(api, count, size, other, drop, kind))


@STEADY
@given(
    count=st.integers(0, 30), size=st.integers(1, 9), other=st.integers(1, 12), drop=st.booleans()
)
def test_goes_on_from_any_state(count: int, size: int, other: int, drop: bool):
    assert_resumes(_rebatched(ours, count, size, other, drop, "dict"))


def test_ragged_batches_become_even():
    def program(api: Any) -> Any:
        ragged = numbers(api, 1, 9).map(lambda x: np.arange(x) + 10 * x)
        return streams(api).RebatchIterDataset(ragged, 4)

    assert_same_stream(program)
    assert_resumes(program(ours))
    assert_resumes(program(ours).map(lambda x: x + 1).batch(2, drop_remainder=True))


def test_keys_in_another_order_are_the_same_structure():
    def turned(x: int) -> Any:
        items = [("a", np.full(2, x)), ("b", np.full(2, -x))]
        return dict(items if x % 2 else items[::-1])

    assert_same_stream(lambda api: streams(api).RebatchIterDataset(numbers(api, 6).map(turned), 3))


@pytest.mark.parametrize("at", [0, 3, 7])
def test_an_error_comes_after_the_batches_before_it(at: int):
    def program(api: Any) -> Any:
        batches = numbers(api, 8).map(lambda x: np.full(3, 1 // (x != at) and x))
        return streams(api).RebatchIterDataset(batches, 2)

    assert_same_stream(program)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros(0),
        {"a": np.zeros(2), "b": np.zeros(3)},
        {},
        {"c": np.zeros(2)},
        {"a": np.int32(2)},
        7,
    ],
)
def test_what_has_no_common_rows_is_an_error_after_what_is_before(bad: Any):
    good = {"a": np.arange(2)}
    stream = numbers(ours, 5).map(lambda x: bad if x == 3 else good)
    iterator = iter(streams(ours).RebatchIterDataset(stream, 4))
    assert len(take(iterator)) == 2
    with pytest.raises(BatchError):
        next(iterator)


def test_a_batch_of_none_is_refused():
    with pytest.raises(PlanError, match="batch_size"):
        _rebatched(ours, 3, 1, 0, False, "number")
