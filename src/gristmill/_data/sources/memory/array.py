"""A source over arrays in memory."""

from typing import SupportsIndex, cast, final

import numpy as np

from gristmill._base.indices import check_index
from gristmill._base.trees.columns import Columns, is_columnar
from gristmill._base.trees.tree import leaves_with_paths, map_leaves
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import AnyArray, Element, Leaf, Span, SupportsArray, Tree


@final
class ArraySource:
    """Random access to a dict, a tuple or a single array with a common first axis.

    Record `i` is the same tree with item `i` of each array. The loader reads whole columns from
    it, so a batch is one gather. A memory-mapped array is loaded only where it is read.

    >>> source = ArraySource({"x": np.array([[1, 2], [3, 4]]), "y": np.array([0, 1])})
    >>> len(source), source[1]
    (2, {'x': array([3, 4]), 'y': np.int64(1)})

    Args:
        arrays: A pytree of arrays whose first axes have the same length. Any object with
            `__array__`, such as a `jax.Array`, counts as an array.

    Raises:
        PlanError: If there is no array, or the arrays have different lengths.
        PlanTypeError: If a leaf is not an array.
    """

    def __init__(self, arrays: Tree) -> None:
        checked = [
            (path, _as_array(path, leaf)) for path, leaf in leaves_with_paths(arrays, "arrays")
        ]
        if not checked:
            raise PlanError(f"`arrays` must hold at least one array, got {arrays!r}.")
        lengths = {path: len(array) for path, array in checked}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{path}: {length}" for path, length in lengths.items())
            raise PlanError(
                f"`arrays` must have one common length along the first axis, got {listed}."
            )
        ordered = iter([array for _, array in checked])
        self._arrays = map_leaves(lambda _: next(ordered), arrays)
        self._length = next(iter(lengths.values()))
        self._description = ", ".join(
            f"{path.removeprefix('arrays') or 'array'}: {array.dtype}{list(array.shape[1:])}"
            for path, array in checked
        )

    @property
    def arrays(self) -> Tree:
        """The arrays, in the tree they were passed in."""
        return self._arrays

    @property
    def is_columnar(self) -> bool:
        """Whether the loader reads whole columns (numbers and times) instead of records."""
        return is_columnar(self._arrays)

    def read_columns(self, indices: Span) -> Columns:
        """Return many records as columns that are not gathered yet.

        Args:
            indices: The records, all of them in bounds.
        """
        return Columns.of(self._arrays, indices)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Element:
        number = check_index(index, self._length)
        return map_leaves(lambda array: _copied(array[number]), self._arrays)

    def __repr__(self) -> str:  # part of checkpoints: the shape of the data, never the data
        return f"ArraySource(<{self._length} records>, {self._description})"


def _copied(item: Leaf) -> Leaf:
    """Return an item that is not a view of its array."""
    return cast(AnyArray, item).copy() if isinstance(item, np.ndarray | np.void) else item


def _as_array(path: str, leaf: object) -> AnyArray:
    if not isinstance(leaf, np.ndarray | SupportsArray):
        raise PlanTypeError(
            f"`{path}` must be an array, got {type(leaf).__name__}. "
            "Use `np.asarray`, or pass a list of records as the source itself."
        )
    if isinstance(leaf, np.ma.MaskedArray):
        raise PlanTypeError(f"`{path}` is a masked array and would lose its mask. Use `.filled()`.")
    array = np.asarray(cast(SupportsArray, leaf))  # turns a memmap into a plain view of itself
    if array.ndim == 0:
        raise PlanError(f"`{path}` must have a first axis that counts the records, got a scalar.")
    return array
