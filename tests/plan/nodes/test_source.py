from typing import Any

import numpy as np
import pytest

from gristmill import DataLoader, RangeDataSource, SequentialSampler
from gristmill._plan.nodes.source import SourceNode
from gristmill.errors import PlanTypeError


class Reads:
    """A source that tells of every read."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        self.reads.append(index)
        return index


def node_over(source: Any) -> SourceNode:
    return SourceNode(site="here:1", source=source)


@pytest.mark.parametrize(
    "source", [[1, 2, 3], (1, 2, 3), range(3), np.arange(3), RangeDataSource(0, 3, 1), Reads()]
)
def test_anything_with_a_length_and_items_is_a_source(source: Any):
    assert node_over(source).length() == 3


def test_building_a_loader_reads_nothing():
    source = Reads()
    DataLoader(data_source=source, sampler=SequentialSampler(3))
    assert source.reads == []


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ([1, 2], "list(<2 records>)"),
        ((1, 2), "tuple(<2 records>)"),
        (range(2), "range(0, 2)"),
        (np.arange(2), "ArraySource(<2 records>, array: int64[])"),
        (RangeDataSource(0, 4, 2), "RangeDataSource(start=0, stop=4, step=2)"),
        (Reads(), "Reads(<3 records>)"),
    ],
)
def test_its_label_holds_neither_data_nor_addresses(source: Any, label: str):
    assert node_over(source).label == label


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (list, r"^`data_source` is the class list\. Pass an instance of it\."),
        ("files", r"^`data_source` is the text 'files'\. Pass a source that reads it\."),
        (b"files", r"^`data_source` is the text b'files'\."),
        ({"x": np.zeros(3)}, r"^`data_source` is a dict\. Wrap .* `ArraySource\(arrays\)`\."),
        (iter([1]), r"^`data_source` must have `__len__` and `__getitem__`, got .* Make a list"),
        (None, r"^`data_source` must have `__len__` and `__getitem__`, got None\."),
        (3, r"^`data_source` must have `__len__` and `__getitem__`, got 3\."),
        ({1, 2}, r"^`data_source` must have `__len__` and `__getitem__`"),
    ],
)
def test_what_cannot_be_read_by_index_is_refused(source: Any, message: str):
    with pytest.raises(PlanTypeError, match=message):
        DataLoader(data_source=source, sampler=SequentialSampler(1))
