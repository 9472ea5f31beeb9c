"""Buckets by length, and the schedule of their batches."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._data.batching.bucket_schedule import num_batches, plan_batches
from gristmill.errors import BatchError, PlanError, PlanTypeError
from gristmill.transforms import BucketByLength, PadBatch


def reference(buckets: BucketByLength, numbers: list[int]) -> list[tuple[int, list[int]]]:
    """Return the bucket and the elements of each batch, as a stream fills them one by one."""
    held: list[list[int]] = [[] for _ in buckets.sizes]
    batches: list[tuple[int, list[int]]] = []
    for element, bucket in enumerate(numbers):
        if bucket < len(held):
            held[bucket].append(element)
            if len(held[bucket]) == buckets.sizes[bucket]:
                batches.append((bucket, held[bucket]))
                held[bucket] = []
    if buckets.remainder != "drop":
        batches += [(bucket, elements) for bucket, elements in enumerate(held) if elements]
    return batches


@given(
    numbers=st.lists(st.integers(0, 3), max_size=60),
    sizes=st.lists(st.integers(1, 5), min_size=3, max_size=3),
    remainder=st.sampled_from(["keep", "drop"]),
)
def test_the_schedule_is_that_of_a_stream(numbers: list[int], sizes: list[int], remainder: Any):
    buckets = BucketByLength([1, 2, 3], batch_sizes=sizes, remainder=remainder)
    array = np.array(numbers, dtype=np.int64)

    schedule = plan_batches(buckets, array, group_size=1)

    planned = [
        (int(schedule.buckets[batch]), schedule.elements(batch).tolist())
        for batch in range(len(schedule))
    ]
    assert planned == reference(buckets, numbers)
    assert num_batches(buckets, array, group_size=1) == len(schedule)


@given(
    numbers=st.lists(st.integers(0, 3), max_size=80),
    sizes=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    group_size=st.integers(2, 4),
    remainder=st.sampled_from(["pad", "drop"]),
)
def test_all_batches_of_a_group_are_of_one_bucket_and_each_element_comes_once(
    numbers: list[int], sizes: list[int], group_size: int, remainder: Any
):
    buckets = BucketByLength(
        [1, 2, 3], batch_sizes=sizes, remainder=remainder, pad=PadBatch(add_mask=True)
    )
    array = np.array(numbers, dtype=np.int64)

    schedule = plan_batches(buckets, array, group_size=group_size)

    groups = schedule.buckets.reshape(-1, group_size)
    assert (groups == groups[:, :1]).all()
    assert len(schedule) == num_batches(buckets, array, group_size=group_size)
    taken: list[int] = []
    for batch in range(len(schedule)):
        bucket, count = int(schedule.buckets[batch]), int(schedule.counts[batch])
        elements = schedule.elements(batch)
        assert (array[elements] == bucket).all()  # also the example of a batch of padding
        assert count <= sizes[bucket]
        taken += elements[:count].tolist()
    assert len(set(taken)) == len(taken)
    kept = [element for element, number in enumerate(numbers) if number < 3]
    if remainder == "pad":
        assert sorted(taken) == kept
    else:
        limits = [size * group_size for size in sizes]
        lost = [numbers[element] for element in set(kept) - set(taken)]
        assert all(lost.count(bucket) < limit for bucket, limit in enumerate(limits))


def test_a_length_belongs_to_the_first_bucket_whose_boundary_is_not_below_it():
    buckets = BucketByLength([2, 4], batch_sizes=1)
    assert buckets.buckets_of([0, 1, 2, 3, 4, 5]).tolist() == [0, 0, 0, 1, 1, 2]


def test_a_token_budget_determines_the_batch_sizes():
    assert BucketByLength([16, 100, 512], max_tokens=1024).sizes == (64, 10, 2)


@pytest.mark.parametrize(
    ("length", "expected"),
    [("a", [1, 2]), (["a", "b"], [3, 2]), (lambda x: len(x["b"]) + 1, [4, 1])],
)
def test_the_length_of_an_element_is_that_of_an_array_or_a_function(length: Any, expected: Any):
    elements = [{"a": [1], "b": [1, 2, 3]}, {"a": [1, 2], "b": []}]
    assert BucketByLength([9], batch_sizes=1, length=length).lengths_of(elements) == expected


def test_elements_that_are_not_arrays_need_a_length():
    buckets = BucketByLength([9], batch_sizes=1)
    assert buckets.lengths_of([np.arange(3), [1, 2]]) == [3, 2]
    with pytest.raises(PlanTypeError, match=r'type dict is not known. Pass `length="key"`'):
        buckets.lengths_of([{"a": [1]}])
    with pytest.raises(PlanTypeError, match="type str is not known"):
        buckets.lengths_of(["abc"])


@pytest.mark.parametrize("length", ["b", ["a", "b"], "c"])
def test_an_element_without_the_array_is_an_error_that_names_the_key(length: Any):
    buckets = BucketByLength([9], batch_sizes=1, length=length)
    elements = [{"a": [1], "b": [1], "c": [1]}, {"a": [1], "b": 3}]
    with pytest.raises(PlanError, match=r"^`length` is '[bc]', but an element has no array there"):
        buckets.lengths_of(elements)


def test_a_batch_of_padding_has_the_shape_of_the_others():
    buckets = BucketByLength(
        [4], batch_sizes=3, length="x", remainder="pad", pad=PadBatch(add_mask=True)
    )
    empty = buckets.make_empty({"x": [1, 2], "label": 7}, 0)
    full = buckets.make([{"x": [1, 2], "label": 7}], 0)

    assert {key: leaf.shape for key, leaf in empty.items()} == {
        key: leaf.shape for key, leaf in full.items()
    }
    assert not empty["x_mask"].any()
    assert not empty["x"].any()


def test_an_element_that_is_too_long_reports_what_to_do():
    error = BucketByLength([4], batch_sizes=3).too_long(9)
    assert isinstance(error, BatchError)
    assert str(error) == (
        "An element has length 9, but the last boundary is 4. Add a larger boundary, cut it in a "
        "map before, or pass `drop_longer=True`."
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"boundaries": []}, PlanError, "`boundaries` must be one or more increasing lengths"),
        ({"boundaries": [4, 2]}, PlanError, r"increasing lengths, got \[4, 2\]"),
        ({"boundaries": 4}, PlanTypeError, "`boundaries` must be a list"),
        ({"batch_sizes": None}, PlanError, "Pass either `batch_sizes`"),
        ({"max_tokens": 8}, PlanError, "Pass either `batch_sizes`"),
        ({"batch_sizes": [1, 2, 3]}, PlanError, "has 3 numbers for 2 boundaries"),
        ({"batch_sizes": 0}, PlanError, "`batch_sizes` must be at least 1"),
        ({"batch_sizes": None, "max_tokens": 3}, PlanError, "less than one element of length 4"),
        ({"remainder": "cut"}, PlanError, '`remainder` must be "keep", "drop" or "pad"'),
        ({"remainder": "pad"}, PlanError, "adds empty rows, which nothing would distinguish"),
        ({"pad": "zeros"}, PlanTypeError, "`pad` must be PadBatch"),
        ({"pad": PadBatch(length=3)}, PlanError, "has a length of its own"),
        ({"drop_longer": "no"}, PlanTypeError, "`drop_longer` must be True or False"),
    ],
)
def test_arguments_are_checked_when_the_pipeline_is_built(arguments: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        BucketByLength(**{"boundaries": [2, 4], "batch_sizes": 2, **arguments})
