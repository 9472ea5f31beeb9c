"""Random access sources over the items of map-style PyTorch datasets."""

from collections.abc import Callable, Sequence
from typing import SupportsIndex, final

import numpy as np

from gristmill._api.adapters.torch.convert import Item, to_numpy
from gristmill._api.adapters.torch.random_state import seeded_generators
from gristmill._api.adapters.torch.readers import Reader, TorchDataset
from gristmill._base.indices import check_index
from gristmill._base.trees.columns import Columns
from gristmill.types import Element, Span


@final
class TorchSource:
    """Reads the items of a dataset by index.

    Args:
        reader: Reads the items.
        length: Number of items.
        collate: Makes a batch of a list of items, in place of the default.

    >>> import torch
    >>> from gristmill._api.adapters.torch.readers import open_reader
    >>> dataset = torch.utils.data.TensorDataset(torch.tensor([1.5, 2.5]), torch.tensor([0, 1]))
    >>> source = TorchSource(open_reader(dataset), len(dataset))
    >>> source, source[1]
    (TorchSource(<2 records>, TensorDataset(float32[], int64[])), (np.float32(2.5), np.int64(1)))
    """

    is_columnar = True
    """The loader reads many items at a time. Some datasets still return them as rows."""

    def __init__(self, reader: Reader, length: int, collate: "Collate | None" = None) -> None:
        self._reader = reader
        self._length = length
        self.collate = collate

    def read_columns(self, indices: Span) -> Columns | list[Element]:
        """Return the elements at `indices`, all of which are in bounds."""
        return self._reader.read(indices)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Element:
        return self._reader.read_one(check_index(index, self._length))

    def __repr__(self) -> str:
        return f"TorchSource(<{self._length} records>, {self._reader.description})"


@final
class TorchIndices:
    """The indices of a dataset, for a random map that reads each item with seeded generators."""

    def __init__(self, description: str, length: int, collate: "Collate | None" = None) -> None:
        self._description = description
        self._length = length
        self.collate = collate

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> int:
        return check_index(index, self._length)

    def __repr__(self) -> str:
        return f"TorchIndices(<{self._length} records>, {self._description})"


@final
class SeededItem:
    """Reads the item at an index while the global generators are seeded from a given one."""

    def __init__(self, dataset: TorchDataset, description: str, *, converts: bool) -> None:
        self._dataset = dataset
        self._description = description
        self._converts = converts

    def __call__(self, index: int, generator: np.random.Generator) -> Element:
        with seeded_generators(generator):
            item = self._dataset[index]
        return to_numpy(item) if self._converts else item

    def __repr__(self) -> str:
        return f"SeededItem({self._description})"


@final
class Collate:
    """Calls the user's `collate_fn` and converts the tensors of the batch to arrays."""

    def __init__(self, function: Callable[[list[Item]], Item]) -> None:
        self._function = function

    def __call__(self, items: Sequence[Item]) -> Element:
        return to_numpy(self._function(list(items)))
