"""Sample PyTorch datasets of each kind that is read in its own way."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset

from gristmill._api.adapters.torch.readers import open_reader
from gristmill._api.adapters.torch.source import TorchSource
from gristmill._base.trees.columns import Columns


class Squares(Dataset[Any]):
    """Creates a tensor for each item, and records the indices it is asked for."""

    def __init__(self, count: int = 9, width: int = 3) -> None:
        self.count, self.width = count, width
        self.requested: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        self.requested.append(index)
        return torch.full((self.width,), index * index), index


class Rows(Squares):
    """Returns views of its own memory, as torchvision's MNIST does without a transform."""

    def __init__(self, count: int = 9) -> None:
        super().__init__(count)
        self.data = torch.arange(count * 4.0).reshape(count, 2, 2)

    def __getitem__(self, index: int) -> Any:
        return {"image": self.data[index], "label": str(index)}


class Ragged(Squares):
    def __getitem__(self, index: int) -> Any:
        return torch.arange(index)


class Many(Squares):
    """Reads many items in one call."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        assert type(indices) is list
        self.requested.append(-len(indices))
        return [(torch.full((self.width,), index * index), index) for index in indices]


class Doubled(TensorDataset):
    """Overrides the items of a `TensorDataset`."""

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
    "concatenated": lambda: ConcatDataset([tensors(4), tensors(1, start=7), tensors(5, start=20)]),
    "concatenated kinds": lambda: ConcatDataset([Squares(4), tensors(3), Squares(2, width=1)]),
    "concatenated in a subset": lambda: Subset(ConcatDataset([tensors(4), tensors(5)]), [8, 1, 4]),
    "concatenated subset": lambda: ConcatDataset([Subset(tensors(), [5, 3]), tensors(2)]),
    "items": Squares,
    "views": Rows,
    "ragged": Ragged,
    "many": Many,
    "stacked": lambda: StackDataset(a=Squares(), b=tensors()),
    "derived": lambda: Doubled(torch.arange(5.0)),
    "large items": lambda: Squares(3, width=9_000),
    "list": lambda: [(torch.arange(3) + i, i) for i in range(4)],
}


def source_of(dataset: Any) -> TorchSource:
    return TorchSource(open_reader(dataset), len(dataset))


def rows_of(elements: Columns | list[Any]) -> list[Any]:
    return elements.rows() if isinstance(elements, Columns) else elements
