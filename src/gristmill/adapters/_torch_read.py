"""How the items of PyTorch's own kinds of datasets are read many at a time.

A `TensorDataset` is columns already. A `Subset` and a `ConcatDataset` only say where an item is, so
they ask the datasets inside for many, too. Exactly these classes: one derived from them may do
anything, and is read item by item, as any other dataset.
"""

from collections.abc import Sequence
from typing import Any, Protocol, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._columns import Columns, RaggedError, as_key
from gristmill._tree import children, flatten
from gristmill.adapters._torch_convert import many_to_numpy, to_numpy
from gristmill.adapters._torch_random import DrawWatch
from gristmill.adapters._torch_tensor import load_torch, shared_array
from gristmill.errors import SourceError
from gristmill.types import Element, Indices, Span


class Reader(Protocol):
    """Reads items; all indices are in bounds, but for those that a `Subset` holds."""

    @property
    def told(self) -> str:
        """What it reads, for people and for checkpoints."""
        ...

    @property
    def is_fixed(self) -> bool:
        """Whether no code of the user's is run for an item, which thus cannot be random."""
        ...

    def read(self, indices: Span) -> Columns | list[Element]:
        """Give many elements."""
        ...

    def read_one(self, index: int) -> Element:
        """Give one element, which belongs to nobody else."""
        ...


def open_reader(dataset: Any, *, converts: bool = True) -> Reader:
    """Give the fastest way to read a dataset; as it is, without making arrays, if asked so."""
    data: Any = load_torch().utils.data
    if converts and type(dataset) is data.TensorDataset:
        return TensorReader(dataset.tensors)
    if converts and type(dataset) is data.Subset:
        picks = _as_indices(dataset)
        if picks is not None:
            return SubsetReader(open_reader(dataset.dataset), picks)
    if converts and type(dataset) is data.ConcatDataset:
        ends = np.cumsum([len(part) for part in dataset.datasets])
        if ends.tolist() == dataset.cumulative_sizes:
            return ConcatReader([open_reader(part) for part in dataset.datasets], ends)
    return ItemReader(dataset, converts=converts)


def _as_indices(subset: Any) -> Indices | None:
    """Give the indices of a subset; `None` if some are of no item, or only its dataset knows."""
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
    """Tensors as columns, on their own memory."""

    is_fixed = True

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._arrays: tuple[NDArray[Any], ...] = tuple(map(shared_array, tensors))
        told = ", ".join(f"{array.dtype}{list(array.shape[1:])}" for array in self._arrays)
        self.told = f"TensorDataset({told})"

    def read(self, indices: Span) -> Columns:
        return Columns.of(self._arrays, indices)

    def read_one(self, index: int) -> Element:
        return tuple([array[index].copy() for array in self._arrays])


@final
class SubsetReader:
    """Some items of another reader."""

    def __init__(self, inner: Reader, picks: Indices) -> None:
        self._inner = inner
        self._picks = picks
        self.told = f"Subset({inner.told})"
        self.is_fixed = inner.is_fixed

    def read(self, indices: Span) -> Columns | list[Element]:
        return self._inner.read(self._picks[as_key(indices)])

    def read_one(self, index: int) -> Element:
        return self._inner.read_one(int(self._picks[index]))


@final
class ConcatReader:
    """The items of several readers, one after the other."""

    def __init__(self, parts: Sequence[Reader], ends: Indices) -> None:
        self._parts = parts
        self._ends = ends
        names = list(dict.fromkeys(part.told for part in parts))
        told = names[0] if len(names) == 1 else f"{names[0]}, ..."
        self.told = f"ConcatDataset({len(parts)} x {told})"
        self.is_fixed = all(part.is_fixed for part in parts)

    def read(self, indices: Span) -> Columns | list[Element]:
        keys = np.arange(len(self))[as_key(indices)] if isinstance(indices, range) else indices
        numbers = np.searchsorted(self._ends, keys, side="right")
        within = keys - np.concatenate([[0], self._ends])[numbers]
        first = int(numbers[0]) if len(numbers) else 0
        if (numbers == first).all():
            return self._parts[first].read(within)
        made: list[tuple[Indices, Columns | list[Element]]] = []
        for number in sorted(set[int](numbers.tolist())):
            rows = np.flatnonzero(numbers == number)
            made.append((rows, self._parts[number].read(within[rows])))
        merged = _merged_columns(made, len(keys))
        return _merged_rows(made, len(keys)) if merged is None else merged

    def read_one(self, index: int) -> Element:
        number = int(np.searchsorted(self._ends, index, side="right"))
        start = int(self._ends[number - 1]) if number else 0
        return self._parts[number].read_one(index - start)

    def __len__(self) -> int:
        return int(self._ends[-1])


def _merged_columns(
    parts: list[tuple[Indices, Columns | list[Element]]], count: int
) -> Columns | None:
    """Put columns of several readers into one, if they are alike."""
    trees: list[tuple[Indices, Any]] = []
    for rows, data in parts:
        if not isinstance(data, Columns):
            return None
        try:
            trees.append((rows, data.gather()))
        except RaggedError:
            return None
    if len({_kind(tree) for _, tree in trees}) > 1:
        return None
    flat = [(rows, *flatten(tree)) for rows, tree in trees]
    merged: list[NDArray[Any]] = []
    for number, leaf in enumerate(flat[0][1]):
        column = np.empty((count, *leaf.shape[1:]), leaf.dtype)
        for rows, leaves, _ in flat:
            column[rows] = leaves[number]
        merged.append(column)
    return Columns(merged, flat[0][2], range(count))


def _kind(tree: Any) -> Any:
    """Give what two trees of columns have in common if they fit into one."""
    inner = children(tree)
    if inner is None:
        return tree.dtype, tree.shape[1:]
    return type(tree), tuple(inner[0]), tuple(map(_kind, inner[1]))


def _merged_rows(parts: list[tuple[Indices, Columns | list[Element]]], count: int) -> list[Element]:
    merged: list[Element] = [None] * count
    for rows, data in parts:
        elements = data.rows() if isinstance(data, Columns) else data
        for row, element in zip(rows.tolist(), elements, strict=True):
            merged[row] = element
    return merged


@final
class ItemReader:
    """The items of any dataset, which its own code makes."""

    is_fixed = False

    def __init__(self, dataset: Any, *, converts: bool) -> None:
        self._dataset = dataset
        self._converts = converts
        self.told = type(dataset).__qualname__.rpartition("<locals>.")[2]
        self._open()

    def _open(self) -> None:
        self._watch = DrawWatch(self._dataset.__getitem__, self.told)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_watch"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def read(self, indices: Span) -> Columns | list[Element]:
        numbers = indices if isinstance(indices, range) else indices.tolist()
        items = self._watch.read(self._read_many, numbers)
        return many_to_numpy(items) if self._converts else items

    def read_one(self, index: int) -> Element:
        (item,) = self._watch.read(self._read_many, (index,))
        return to_numpy(item) if self._converts else item

    def _read_many(self, indices: Sequence[int]) -> list[Any]:
        ask = getattr(self._dataset, "__getitems__", None)
        items: list[Any] = (
            list(cast("Sequence[Any]", ask(list(indices))))
            if callable(ask)
            else list(map(self._dataset.__getitem__, indices))
        )
        if len(items) != len(indices):
            raise SourceError(
                f"`__getitems__` of {self.told} gave {len(items)} items for {len(indices)} indices."
            )
        return items
