"""Batches: at any positions of a dense parent, and of the elements of a block in order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gristmill import (
    ArraySource,
    Batch,
    DataLoader,
    Map,
    MapDataset,
    SequentialSampler,
    from_torch,
)
from gristmill._engine.access.batch import batch_ends, make_batches
from gristmill._engine.access.cut import cut_plan
from gristmill._engine.access.reader import open_cut, open_dataset
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.lineage import lineage_of
from gristmill.errors import BatchError, PlanError


@given(size=st.integers(1, 9), count=st.integers(1, 40))
def test_all_batches_but_the_last_have_the_size(size: int, count: int):
    ends = batch_ends(size, count)

    assert ends == [min(start + size, count) for start in range(0, count, size)]


@given(
    length=st.integers(1, 20),
    size=st.integers(1, 6),
    drop_remainder=st.booleans(),
    indices=st.lists(st.integers(0, 30), max_size=9),
)
def test_batches_at_any_indices_are_of_any_epoch(
    length: int, size: int, drop_remainder: bool, indices: list[int]
):
    dataset: Any = MapDataset.range(length).repeat(3).batch(size, drop_remainder=drop_remainder)
    if not len(dataset):
        return

    result = open_dataset(dataset._plan_node)(np.array(indices, dtype=np.int64))

    batches = [
        [number % length for number in range(start, min(start + size, 3 * length))]
        for start in range(0, 3 * length, size)
    ][: len(dataset)]
    assert [batch.tolist() for batch in result.block.rows()] == [
        batches[index % len(dataset)] for index in indices
    ]


class Fail(Map):
    def __init__(self, at: int) -> None:
        self._at = at

    def map(self, element: int) -> int:
        if element == self._at:
            raise ValueError("failed")
        return element


def streamed(positions: Any, *operations: Any) -> BlockResult:
    loader = DataLoader(data_source=range(20), sampler=SequentialSampler(20), operations=operations)
    return open_cut(cut_plan(loader._plan_node, skips_errors=False, below_batches=False))(positions)


def test_an_error_below_follows_the_whole_batches_before_it():
    stream = streamed(range(1, 5), Fail(at=11), Batch(3))
    dataset: Any = MapDataset.range(20).map(Fail(at=11)).batch(3)
    by_index = open_dataset(dataset._plan_node)(range(1, 5))

    for result in (stream, by_index):
        assert [batch.tolist() for batch in result.block.rows()] == [[3, 4, 5], [6, 7, 8]]
        assert str(result.error) == "failed"


def test_batches_of_a_stream_have_the_cursors_of_their_last_records():
    lineage = streamed(range(5, 7), Batch(3)).block.lineage

    assert [lineage.after(row) for row in range(2)] == [(18,), (20,)]
    assert lineage.positions().tolist() == [17, 19]


def test_the_record_that_does_not_fit_is_named():
    def ragged(x: int) -> Any:
        return np.zeros(2 if x == 7 else 1)

    stream = streamed(range(4), ragged, Batch(3))
    dataset: Any = MapDataset.range(20).map(ragged).batch(3)
    by_index = open_dataset(dataset._plan_node)(range(4))

    for result, name in ((stream, "record 7 of the source"), (by_index, "element 2")):
        assert len(result.block) == 2
        assert isinstance(result.error, BatchError)
        assert name in "".join(result.error.__notes__)


def batches_of(elements: list[Any], function: Any = None) -> BlockResult:
    dataset: Any = MapDataset.source(elements).batch(2, batch_fn=function)
    return open_dataset(dataset._plan_node)(range(2))


def test_a_batch_with_an_absent_element_is_an_error_that_explains_it():
    result = batches_of([1, 2, None, 4])

    assert [batch.tolist() for batch in result.block.rows()] == [[1, 2]]
    assert isinstance(result.error, PlanError)
    assert str(result.error) == (
        "An element of the batch is absent (None). Call `to_iter_dataset()` before `batch`: it "
        "leaves absent elements out."
    )


def test_a_batch_function_may_take_absent_elements_but_not_return_none():
    def count_absent(elements: Sequence[Any]) -> int:
        return elements.count(None)

    assert batches_of([1, 2, None, 4], count_absent).block.rows() == [0, 1]
    result = batches_of([1, 2, 3, 4], lambda elements: None)
    assert str(result.error) == "The batch is None, which stands for an absent element."


@pytest.mark.parametrize("source", [list(np.ones((7, 9999))), ArraySource(np.ones((7, 9999)))])
def test_only_the_batches_on_top_are_made_in_arrays_of_the_given_allocator(source: Any):
    made: list[Any] = []

    def allocate(shape: Any, dtype: Any) -> Any:
        made.append(np.empty(shape, dtype))
        return made[-1]

    loader = DataLoader(
        data_source=source, sampler=SequentialSampler(7), operations=[Batch(2), Batch(2)]
    )
    cut = cut_plan(loader._plan_node, skips_errors=False, below_batches=False)
    (batch,) = open_cut(cut, allocate)(range(1)).block.rows()

    assert batch.shape == (2, 2, 9999)
    assert [array is batch for array in made] == [True]


def test_a_batch_continues_with_the_generator_of_its_last_element():
    states: Any = [{"state": number} for number in range(5)]
    block = Block([0, 1, 2, 3, 4], lineage_of(range(5)), states)
    node: Any = MapDataset.range(5).batch(2)._plan_node

    made = make_batches(node, block, batch_ends(2, 5)).block

    assert made.generators == [states[1], states[3], states[4]]


class Tensors:
    """A dataset of tensors, whose columns hold an object for each item. One item may raise."""

    def __init__(self, count: int, bad: int | None = None) -> None:
        self._count = count
        self._bad = bad

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        if index == self._bad:
            raise ValueError(f"item {index}")
        return torch.tensor([index, -index]), torch.tensor(index)


@given(
    first=st.integers(0, 5),
    count=st.integers(1, 6),
    bad=st.none() | st.integers(0, 19),
    drop_remainder=st.booleans(),
)
def test_columns_of_objects_are_read_batch_by_batch_to_the_same_elements(
    first: int, count: int, bad: int | None, drop_remainder: bool
):
    dataset: Any = from_torch(Tensors(20, bad)).batch(3, drop_remainder=drop_remainder)
    read = open_dataset(dataset._plan_node)
    read(range(1))  # from now on the reader knows what its columns are

    span = range(first, min(first + count, len(dataset)))
    result = read(span)

    one_by_one = [read(range(number, number + 1)) for number in span]
    failed = next((row for row, other in enumerate(one_by_one) if other.error), len(span))
    expected = [row for other in one_by_one[:failed] for row in other.block.rows()]
    np.testing.assert_equal(result.block.rows(), expected)
    assert list(result.block.lineage.positions()) == list(span[:failed])
    if failed < len(span):
        assert repr(result.error) == repr(one_by_one[failed].error)
    else:
        assert result.error is None
