"""The items of a map-style dataset of PyTorch, as a source of ours."""

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, final

import numpy as np

from gristmill._columns import Columns
from gristmill.adapters._torch_convert import to_numpy
from gristmill.adapters._torch_random import drawing_from
from gristmill.adapters._torch_read import Reader
from gristmill.types import Element, Span


@final
class TorchSource:
    """Random access to the items of a dataset.

    >>> import torch
    >>> from gristmill.adapters._torch_read import open_reader
    >>> dataset = torch.utils.data.TensorDataset(torch.tensor([1.5, 2.5]), torch.tensor([0, 1]))
    >>> source = TorchSource(open_reader(dataset), len(dataset))
    >>> source, source[1]
    (TorchSource(<2 records>, TensorDataset(float32[], int64[])), (np.float32(2.5), np.int64(1)))
    """

    is_columnar = True
    """The loader asks for many at a time; some datasets give them as rows all the same."""

    def __init__(self, reader: Reader, length: int, collate: "Collate | None" = None) -> None:
        self._reader = reader
        self._length = length
        self.collate = collate

    def read_columns(self, indices: Span) -> Columns | list[Element]:
        """Give many records; all of `indices` are in bounds."""
        return self._reader.read(indices)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Element:
        return self._reader.read_one(_as_position(index, self._length))

    def __repr__(self) -> str:
        return f"TorchSource(<{self._length} records>, {self._reader.told})"


@final
class TorchIndices:
    """The indices of a dataset, for a step that reads the items with generators of their own."""

    def __init__(self, told: str, length: int, collate: "Collate | None" = None) -> None:
        self._told = told
        self._length = length
        self.collate = collate

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> int:
        return _as_position(index, self._length)

    def __repr__(self) -> str:
        return f"TorchIndices(<{self._length} records>, {self._told})"


@final
class SeededItem:
    """Reads the item at an index while the global generators draw from the one that is given."""

    def __init__(self, dataset: Any, told: str, *, converts: bool) -> None:
        self._dataset = dataset
        self._told = told
        self._converts = converts

    def __call__(self, index: int, generator: np.random.Generator) -> Element:
        with drawing_from(generator):
            item = self._dataset[index]
        return to_numpy(item) if self._converts else item

    def __repr__(self) -> str:
        return f"SeededItem({self._told})"


@final
class Collate:
    """The user's `collate_fn`, its tensors as arrays."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self._function = function

    def __call__(self, elements: Sequence[Element]) -> Element:
        return to_numpy(self._function(list(elements)))


def _as_position(index: SupportsIndex, length: int) -> int:
    position = index.__index__()
    if not 0 <= position < length:
        raise IndexError(f"`index` must be in [0, {length}), got {position}.")
    return position
