"""Each kind of dataset of PyTorch is read as PyTorch reads it, and by the block where it can be."""

import pickle
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset

from gristmill._columns import Columns
from gristmill.adapters._torch_convert import to_numpy
from gristmill.adapters._torch_read import open_reader
from gristmill.adapters._torch_source import TorchSource
from gristmill.errors import SourceError
from gristmill.testing import SourceSuite
from gristmill.testing._records import difference


class Squares(Dataset[Any]):
    """Makes a tensor for each item."""

    def __init__(self, count: int = 9, width: int = 3) -> None:
        self.count, self.width = count, width
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        self.asked.append(index)
        return torch.full((self.width,), index * index), index


class Rows(Squares):
    """Gives views of its own memory, without a transform, as torchvision's MNIST can."""

    def __init__(self, count: int = 9) -> None:
        super().__init__(count)
        self.data = torch.arange(count * 4.0).reshape(count, 2, 2)

    def __getitem__(self, index: int) -> Any:
        return {"image": self.data[index], "label": str(index)}


class Ragged(Squares):
    def __getitem__(self, index: int) -> Any:
        return torch.arange(index)


class Many(Squares):
    """Reads many items at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        assert type(indices) is list
        self.asked.append(-len(indices))
        return [(torch.full((self.width,), index * index), index) for index in indices]


class Doubled(TensorDataset):
    """Overrides what an item is."""

    def __getitem__(self, index: Any) -> Any:
        return tuple(tensor[index] * 2 for tensor in self.tensors)


def tensors(count: int = 9, *, start: int = 0) -> TensorDataset:
    numbers = torch.arange(start, start + count)
    return TensorDataset(numbers.reshape(count, 1) / 2, numbers)


KINDS: dict[str, Callable[[], Any]] = {
    "tensors": tensors,
    "strided tensors": lambda: TensorDataset(torch.arange(24.0).reshape(4, 6).T),
    "tensors of bfloat16": lambda: TensorDataset(torch.arange(6.0).to(torch.bfloat16)),
    "tensors with gradients": lambda: TensorDataset(torch.ones(3, 2, requires_grad=True)),
    "no rows": lambda: TensorDataset(torch.zeros(0, 2)),
    "subset": lambda: Subset(tensors(), [8, 0, 0, 3]),
    "subset by a range": lambda: Subset(tensors(), range(7, 0, -2)),
    "subset by a tensor": lambda: Subset(tensors(), cast(Any, torch.tensor([5, 1]))),
    "empty subset": lambda: Subset(tensors(), []),
    "subset counted from the end": lambda: Subset(tensors(), [-1, 2]),
    "subset of a subset": lambda: Subset(Subset(tensors(), [4, 2, 7, 1]), [3, 0]),
    "subset of items": lambda: Subset(Squares(), [8, 0, 0, 3]),
    "subset of many": lambda: Subset(Many(), [8, 0, 0, 3]),
    "parts": lambda: ConcatDataset([tensors(4), tensors(1, start=7), tensors(5, start=20)]),
    "parts of two kinds": lambda: ConcatDataset([Squares(4), tensors(3), Squares(2, width=1)]),
    "parts in a subset": lambda: Subset(ConcatDataset([tensors(4), tensors(5)]), [8, 1, 4]),
    "a subset among parts": lambda: ConcatDataset([Subset(tensors(), [5, 3]), tensors(2)]),
    "items": Squares,
    "views": Rows,
    "ragged": Ragged,
    "many": Many,
    "stacked": lambda: StackDataset(a=Squares(), b=tensors()),
    "derived": lambda: Doubled(torch.arange(5.0)),
    "large items": lambda: Squares(3, width=9_000),
    "list": lambda: [(torch.arange(3) + i, i) for i in range(4)],
}


WITH_WORKERS = ["tensors of bfloat16", "parts in a subset", "parts of two kinds", "views"]
"""A worker that imports PyTorch takes seconds, so not all of them are read there."""

IN_COLUMNS = ["tensors", "subset", "subset of a subset", "parts", "parts in a subset"]


def source_of(dataset: Any) -> TorchSource:
    return TorchSource(open_reader(dataset), len(dataset))


def rows_of(made: Columns | list[Any]) -> list[Any]:
    return made.rows() if isinstance(made, Columns) else made


class TestTorchSource(SourceSuite):
    @pytest.fixture(params=[kind for kind in KINDS if kind != "list"])
    def source(self, request: pytest.FixtureRequest) -> TorchSource:
        self.kind = request.param
        return source_of(KINDS[request.param]())

    def test_a_worker_process_reads_the_same(self, source: Any) -> None:
        if self.kind in WITH_WORKERS:
            super().test_a_worker_process_reads_the_same(source)


@pytest.mark.parametrize("kind", KINDS)
def test_an_element_is_the_item_of_the_dataset(kind: str):
    dataset = KINDS[kind]()
    source = source_of(dataset)

    for index in range(len(dataset)):
        assert difference(to_numpy(dataset[index]), source[index]) is None


@given(data=st.data(), kind=st.sampled_from(list(KINDS)))
@settings(max_examples=200, deadline=None)
def test_many_elements_are_the_items_at_those_indices(data: st.DataObject, kind: str):
    dataset = KINDS[kind]()
    places = st.integers(0, max(0, len(dataset) - 1))
    picks = data.draw(st.lists(places, max_size=20) if len(dataset) else st.just([]))

    made = rows_of(source_of(dataset).read_columns(np.array(picks, np.int64)))

    assert difference([to_numpy(dataset[index]) for index in picks], made) is None


@pytest.mark.parametrize("kind", [*IN_COLUMNS, "a subset among parts"])
def test_what_is_made_of_tensors_is_read_as_columns(kind: str):
    dataset = KINDS[kind]()

    made = source_of(dataset).read_columns(np.arange(len(dataset))[::-1])

    assert isinstance(made, Columns)
    assert not made.holds_objects


def test_columns_are_the_tensors_themselves():
    images = torch.zeros(5, 2)
    reader = open_reader(TensorDataset(images))
    images[3] = 7

    assert reader.read_one(3)[0].tolist() == [7, 7]


def test_a_class_derived_from_them_is_read_item_by_item():
    assert source_of(Doubled(torch.arange(3.0)))[2] == (4.0,)


def test_many_items_are_asked_for_at_once_also_through_a_subset():
    inner = Many()
    open_reader(inner).read(range(4))
    open_reader(Subset(inner, [5, 3, 2])).read(range(3))

    assert inner.asked == [-4, -3]


def test_parts_are_each_asked_once():
    first, second = Many(4), Many(5)

    open_reader(ConcatDataset([first, second])).read(np.array([8, 0, 4, 3, 5]))

    assert (first.asked, second.asked) == ([-2], [-3])


def test_a_dataset_that_gives_too_few_items_is_told_so():
    class Short(Many):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [self[index] for index in indices[1:]]

    with pytest.raises(SourceError, match=r"`__getitems__` of Short gave 2 items for 3 indices\."):
        open_reader(Short()).read(range(3))


def test_an_index_of_a_subset_that_is_outside_raises_what_the_dataset_raises():
    for inner in (tensors(3), Squares(3)):
        with pytest.raises(IndexError):
            source_of(Subset(inner, [0, 3]))[1]


def test_a_source_of_tensors_goes_to_a_worker_without_pytorch():
    data = pickle.dumps(source_of(KINDS["parts in a subset"]()))

    assert b"torch._" not in data
    assert difference(source_of(KINDS["parts in a subset"]())[0], pickle.loads(data)[0]) is None


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("tensors", "TensorDataset(float32[1], int64[])"),
        ("subset of items", "Subset(Squares)"),
        ("parts of two kinds", "ConcatDataset(3 x Squares, ...)"),
    ],
)
def test_the_repr_tells_what_is_read(kind: str, told: str):
    source = source_of(KINDS[kind]())

    assert repr(source) == f"TorchSource(<{len(source)} records>, {told})"
