"""Each kind of PyTorch dataset is read as PyTorch reads it, many items at a time if possible."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from gristmill._api.adapters.torch.convert import to_numpy
from gristmill._api.adapters.torch.readers import open_reader
from gristmill._base.trees.columns import Columns
from gristmill.errors import SourceError
from gristmill.testing._records import difference
from tests.api.adapters.torch.torch_datasets import (
    KINDS,
    Doubled,
    Many,
    Squares,
    rows_of,
    source_of,
    tensors,
)

IN_COLUMNS = ["tensors", "subset", "subset of a subset", "concatenated", "concatenated in a subset"]


@given(data=st.data(), kind=st.sampled_from(list(KINDS)))
@settings(max_examples=200, deadline=None)
def test_many_elements_are_the_items_at_those_indices(data: st.DataObject, kind: str):
    dataset = KINDS[kind]()
    indices = st.integers(0, max(0, len(dataset) - 1))
    picks = data.draw(st.lists(indices, max_size=20) if len(dataset) else st.just([]))

    elements = rows_of(source_of(dataset).read_columns(np.array(picks, np.int64)))

    assert difference([to_numpy(dataset[index]) for index in picks], elements) is None


@pytest.mark.parametrize("kind", [*IN_COLUMNS, "concatenated subset"])
def test_datasets_of_tensors_are_read_as_columns(kind: str):
    dataset = KINDS[kind]()

    columns = source_of(dataset).read_columns(np.arange(len(dataset))[::-1])

    assert isinstance(columns, Columns)
    assert not columns.holds_objects


def test_columns_share_the_memory_of_the_tensors():
    images = torch.zeros(5, 2)
    reader = open_reader(TensorDataset(images))
    images[3] = 7

    assert reader.read_one(3)[0].tolist() == [7, 7]


def test_a_derived_class_is_read_item_by_item():
    assert source_of(Doubled(torch.arange(3.0)))[2] == (4.0,)


def test_many_items_are_read_in_one_call_also_through_a_subset():
    inner = Many()
    open_reader(inner).read(range(4))
    open_reader(Subset(inner, [5, 3, 2])).read(range(3))

    assert inner.requested == [-4, -3]


def test_each_concatenated_dataset_is_read_in_one_call():
    first, second = Many(4), Many(5)

    open_reader(ConcatDataset([first, second])).read(np.array([8, 0, 4, 3, 5]))

    assert (first.requested, second.requested) == ([-2], [-3])


def test_a_dataset_that_returns_too_few_items_is_an_error():
    class Short(Many):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [self[index] for index in indices[1:]]

    message = r"`__getitems__` of Short .*, but returned 2 items for 3 indices\."
    with pytest.raises(SourceError, match=message):
        open_reader(Short()).read(range(3))


def test_a_subset_index_out_of_bounds_raises_the_error_of_the_dataset():
    for inner in (tensors(3), Squares(3)):
        with pytest.raises(IndexError):
            source_of(Subset(inner, [0, 3]))[1]
