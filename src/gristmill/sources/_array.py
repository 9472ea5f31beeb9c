"""Arrays whose first axis counts the records."""

from typing import Any, SupportsIndex, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._columns import Columns, is_columnar
from gristmill._tree import leaves_with_paths, map_leaves
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element, Span, SupportsArray, Tree


@final
class ArraySource:
    """Random access to a dict, a tuple or a single array with a common first axis.

    Record `i` is the same tree with item `i` of each array. The loader takes whole columns from
    it, so that a batch is one gather. Memory-mapped arrays are read only where they are used.

    >>> source = ArraySource({"x": np.array([[1, 2], [3, 4]]), "y": np.array([0, 1])})
    >>> len(source), source[1]
    (2, {'x': array([3, 4]), 'y': np.int64(1)})
    """

    def __init__(self, arrays: Tree) -> None:
        checked = [
            (path, _as_array(path, leaf)) for path, leaf in leaves_with_paths(arrays, "arrays")
        ]
        if not checked:
            raise PlanError(f"`arrays` must hold at least one array, got {arrays!r}.")
        lengths = {path: len(array) for path, array in checked}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{path}: {length}" for path, length in lengths.items())
            raise PlanError(
                f"`arrays` must have one common length along the first axis, got {told}."
            )
        ordered = iter([array for _, array in checked])
        self._arrays = map_leaves(lambda _: next(ordered), arrays)
        self._length = next(iter(lengths.values()))
        self._told = ", ".join(
            f"{path.removeprefix('arrays') or 'array'}: {array.dtype}{list(array.shape[1:])}"
            for path, array in checked
        )

    @property
    def arrays(self) -> Tree:
        """The arrays themselves, in the tree they came in."""
        return self._arrays

    @property
    def is_columnar(self) -> bool:
        """Whether the loader takes whole columns: numbers and times; else it takes records."""
        return is_columnar(self._arrays)

    def read_columns(self, indices: Span) -> Columns:
        """Give many records as columns, not gathered yet; all of `indices` are in bounds."""
        return Columns.of(self._arrays, indices)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Element:
        position = index.__index__()
        if not 0 <= position < self._length:
            raise IndexError(f"`index` must be in [0, {self._length}), got {position}.")
        return map_leaves(lambda array: _own(array[position]), self._arrays)

    def __repr__(self) -> str:  # goes into checkpoints: the shape of the data, never the data
        return f"ArraySource(<{self._length} records>, {self._told})"


def _own(item: Any) -> Any:
    return cast(Any, item).copy() if isinstance(item, np.ndarray | np.void) else item


def _as_array(path: str, leaf: Any) -> NDArray[Any]:
    if not isinstance(leaf, np.ndarray | SupportsArray):
        raise PlanTypeError(
            f"`{path}` must be an array, got {type(leaf).__name__}. "
            "Use `np.asarray`, or pass a list of records as the source itself."
        )
    if isinstance(leaf, np.ma.MaskedArray):
        raise PlanTypeError(f"`{path}` is a masked array and would lose its mask. Use `.filled()`.")
    array = np.asarray(cast(Any, leaf))  # a memmap too becomes a plain view of itself
    if array.ndim == 0:
        raise PlanError(f"`{path}` must have a first axis that counts the records, got a scalar.")
    return array
