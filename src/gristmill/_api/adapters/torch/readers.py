"""Reads many items at a time from the dataset classes of PyTorch.

A `TensorDataset` consists of columns already. A `Subset` and a `ConcatDataset` only map indices, so
their readers ask the inner datasets for many items, too. This holds for exactly these classes: a
derived class may override anything, and is read item by item like any other dataset.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, cast, final

import numpy as np

from gristmill._api.adapters.torch.convert import Item, many_to_numpy, to_numpy
from gristmill._api.adapters.torch.random_state import RandomDrawMonitor
from gristmill._api.adapters.torch.tensor import Tensor, load_torch, view_as_array
from gristmill._base.trees.columns import Columns, RaggedError, as_numpy_index
from gristmill._base.trees.tree import children, flatten
from gristmill.errors import SourceError
from gristmill.types import AnyArray, Element, Indices, Span, Tree

TorchDataset: TypeAlias = Any
"""A `torch.utils.data.Dataset`, or any object with `__len__` and `__getitem__`."""


class Reader(Protocol):
    """Reads elements by index. Indices are in bounds, except for those stored in a `Subset`."""

    @property
    def description(self) -> str:
        """Name of the dataset for error messages and checkpoints."""
        ...

    @property
    def is_deterministic(self) -> bool:
        """Whether no user code runs to make an item, so that it cannot be random."""
        ...

    def read(self, indices: Span) -> Columns | list[Element]:
        """Return the elements at `indices`."""
        ...

    def read_one(self, index: int) -> Element:
        """Return the element at `index`, in memory of its own."""
        ...


def open_reader(dataset: TorchDataset, *, converts: bool = True) -> Reader:
    """Return the fastest reader for a dataset.

    Args:
        dataset: The dataset.
        converts: Whether items are converted to NumPy. If not, they are returned unchanged.
    """
    data = load_torch().utils.data
    if converts and type(dataset) is data.TensorDataset:
        return TensorReader(dataset.tensors)
    if converts and type(dataset) is data.Subset:
        picks = _get_subset_indices(dataset)
        if picks is not None:
            return SubsetReader(open_reader(dataset.dataset), picks)
    if converts and type(dataset) is data.ConcatDataset:
        ends = np.cumsum([len(inner) for inner in dataset.datasets])
        if ends.tolist() == dataset.cumulative_sizes:
            return ConcatReader([open_reader(inner) for inner in dataset.datasets], ends)
    return ItemReader(dataset, converts=converts)


def get_type_name(dataset: object) -> str:
    """Return the name of a dataset's class without the function that defines it.

    >>> get_type_name([1, 2])
    'list'
    """
    return type(dataset).__qualname__.rpartition("<locals>.")[2]


def _get_subset_indices(subset: TorchDataset) -> Indices | None:
    """Return the indices of a subset, or None if not all are integers in bounds."""
    try:
        picks, length = np.asarray(subset.indices), len(subset.dataset)
    except (ValueError, TypeError):
        return None
    if picks.size == 0:
        return np.zeros(0, np.int64)
    if picks.ndim != 1 or picks.dtype.kind not in "iu":
        return None
    return picks.astype(np.int64) if picks.min() >= 0 and picks.max() < length else None


@final
class TensorReader:
    """Reads a `TensorDataset` as columns that share the memory of its tensors."""

    is_deterministic = True

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._arrays: tuple[AnyArray, ...] = tuple(map(view_as_array, tensors))
        types = ", ".join(f"{array.dtype}{list(array.shape[1:])}" for array in self._arrays)
        self.description = f"TensorDataset({types})"

    def read(self, indices: Span) -> Columns:
        return Columns.of(self._arrays, indices)

    def read_one(self, index: int) -> Element:
        return tuple([array[index].copy() for array in self._arrays])


@final
class SubsetReader:
    """Reads some items of another reader."""

    def __init__(self, inner: Reader, picks: Indices) -> None:
        self._inner = inner
        self._picks = picks
        self.description = f"Subset({inner.description})"
        self.is_deterministic = inner.is_deterministic

    def read(self, indices: Span) -> Columns | list[Element]:
        return self._inner.read(self._picks[as_numpy_index(indices)])

    def read_one(self, index: int) -> Element:
        return self._inner.read_one(int(self._picks[index]))


@final
class ConcatReader:
    """Reads the items of several readers, one after the other.

    Args:
        readers: The readers.
        ends: For each reader, the index after its last item.
    """

    def __init__(self, readers: Sequence[Reader], ends: Indices) -> None:
        self._readers = readers
        self._ends = ends
        names = list(dict.fromkeys(reader.description for reader in readers))
        shown = names[0] if len(names) == 1 else f"{names[0]}, ..."
        self.description = f"ConcatDataset({len(readers)} x {shown})"
        self.is_deterministic = all(reader.is_deterministic for reader in readers)

    def read(self, indices: Span) -> Columns | list[Element]:
        keys = (
            np.arange(len(self))[as_numpy_index(indices)] if isinstance(indices, range) else indices
        )
        numbers = np.searchsorted(self._ends, keys, side="right")
        within = keys - np.concatenate([[0], self._ends])[numbers]
        first = int(numbers[0]) if len(numbers) else 0
        if (numbers == first).all():
            return self._readers[first].read(within)
        fragments: list[_Fragment] = []
        for number in sorted(set[int](numbers.tolist())):
            rows = np.flatnonzero(numbers == number)
            fragments.append((rows, self._readers[number].read(within[rows])))
        merged = _merge_columns(fragments, len(keys))
        return _merge_rows(fragments, len(keys)) if merged is None else merged

    def read_one(self, index: int) -> Element:
        number = int(np.searchsorted(self._ends, index, side="right"))
        start = int(self._ends[number - 1]) if number else 0
        return self._readers[number].read_one(index - start)

    def __len__(self) -> int:
        return int(self._ends[-1])


_Fragment: TypeAlias = tuple[Indices, Columns | list[Element]]
"""Elements of one reader, and their rows among the elements of all readers."""


def _merge_columns(fragments: Sequence[_Fragment], count: int) -> Columns | None:
    """Merge columns of several readers, or return None if they do not fit into one array each."""
    trees: list[tuple[Indices, Tree]] = []
    for rows, data in fragments:
        if not isinstance(data, Columns):
            return None
        try:
            trees.append((rows, data.gather()))
        except RaggedError:
            return None
    if len({_get_structure(tree) for _, tree in trees}) > 1:
        return None
    flat = [(rows, *flatten(tree)) for rows, tree in trees]
    merged: list[AnyArray] = []
    for number, leaf in enumerate(flat[0][1]):
        column = np.empty((count, *leaf.shape[1:]), leaf.dtype)
        for rows, leaves, _ in flat:
            column[rows] = leaves[number]
        merged.append(column)
    return Columns(merged, flat[0][2], range(count))


def _get_structure(tree: Tree) -> tuple[object, ...]:
    """Return the containers, dtypes and item shapes of a tree of arrays, to compare with others."""
    inner = children(tree)
    if inner is None:
        return tree.dtype, tree.shape[1:]
    return type(cast(object, tree)), tuple(inner[0]), tuple(map(_get_structure, inner[1]))


def _merge_rows(fragments: Sequence[_Fragment], count: int) -> list[Element]:
    merged: list[Element] = [None] * count
    for rows, data in fragments:
        elements = data.rows() if isinstance(data, Columns) else data
        for row, element in zip(rows.tolist(), elements, strict=True):
            merged[row] = element
    return merged


@final
class ItemReader:
    """Reads the items of any dataset through its own `__getitems__` or `__getitem__`."""

    is_deterministic = False

    def __init__(self, dataset: TorchDataset, *, converts: bool) -> None:
        self._dataset = dataset
        self._converts = converts
        self.description = get_type_name(dataset)
        self._start_monitor()

    def _start_monitor(self) -> None:
        self._monitor = RandomDrawMonitor(self._dataset.__getitem__, self.description)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_monitor"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._start_monitor()

    def read(self, indices: Span) -> Columns | list[Element]:
        numbers = indices if isinstance(indices, range) else indices.tolist()
        items = self._monitor.read(self._read_items, numbers)
        return many_to_numpy(items) if self._converts else items

    def read_one(self, index: int) -> Element:
        (item,) = self._monitor.read(self._read_items, (index,))
        return to_numpy(item) if self._converts else item

    def _read_items(self, indices: Sequence[int]) -> list[Item]:
        get_items = getattr(self._dataset, "__getitems__", None)
        items: list[Item] = (
            list(cast("Sequence[Item]", get_items(list(indices))))
            if callable(get_items)
            else list(map(self._dataset.__getitem__, indices))
        )
        if len(items) != len(indices):
            raise SourceError(
                f"`__getitems__` of {self.description} must return one item for each index, but "
                f"returned {len(items)} items for {len(indices)} indices."
            )
        return items
