"""Many elements as one pytree of arrays that share their first axis."""

from collections.abc import Callable, Hashable, Sequence
from math import prod
from operator import itemgetter
from typing import Protocol, TypeAlias, cast, final, runtime_checkable

import numpy as np

from gristmill._base.trees.tree import builder, children, flatten, leaves_with_paths
from gristmill.types import AnyArray, AnyDType, Element, Indices, Leaf, Span, Tree

Allocate: TypeAlias = Callable[..., AnyArray]
"""Creates an array from a shape and a dtype, as `np.empty` does."""

_LARGE_ITEM_BYTES = 16_384
"""Handing out an item of this size takes less time than copying it."""


@runtime_checkable
class LazyColumn(Protocol):
    """A column whose array is only created when a batch is made from it."""

    @property
    def dtype(self) -> AnyDType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def is_list(self) -> bool:
        """Whether the column holds an object for each item, which the garbage collector counts."""
        ...

    @property
    def has_own_items(self) -> bool:
        """Whether `items` differ from those of the gathered array, as Python numbers do."""
        ...

    def gather(self, indices: Span, allocate: Allocate, /) -> AnyArray:
        """Return the items at `indices` in one new array, in memory from `allocate`.

        Raises:
            RaggedError: If the items turn out to have several shapes.
        """
        ...

    def items(self, indices: Span, /) -> list[Leaf]:
        """Return the items at `indices` as a list. They may have different shapes."""
        ...


class RaggedError(Exception):
    """The items of a column have several shapes. Never reaches the user."""


@final
class Columns:
    """The elements at some indices of a pytree of arrays, copied only when needed.

    Slicing only slices the indices, so records travel from a source to their batch with a single
    copy.

    >>> import numpy as np
    >>> columns = Columns.of({"x": np.array([10, 20, 30, 40])}, range(1, 4))
    >>> columns[1:].gather()
    {'x': array([30, 40])}
    """

    __slots__ = ("_are_new", "_arrays", "_check", "_indices", "_unflatten")

    def __init__(
        self,
        arrays: Sequence[AnyArray | LazyColumn],
        unflatten: Callable[[Sequence[Leaf]], Tree],
        indices: Span,
        check: Callable[[], object] | None = None,
        are_new: bool = False,
    ) -> None:
        self._arrays = arrays
        self._unflatten = unflatten
        self._indices = indices
        self._check = check
        self._are_new = are_new

    @staticmethod
    def of_new(tree: Tree) -> "Columns":
        """Return all elements of a pytree of arrays that nothing else refers to.

        Args:
            tree: The arrays, of one length. The rows are views of them.
        """
        arrays, unflatten = flatten(tree)
        return Columns(arrays, unflatten, range(len(arrays[0])), are_new=True)

    @staticmethod
    def of(tree: Tree, indices: Span, *, check: Callable[[], object] | None = None) -> "Columns":
        """Return the elements at `indices` of a pytree of arrays.

        Args:
            tree: The arrays.
            indices: Which of their items are the elements.
            check: For arrays over mapped files: raises if a file has changed. It is called before
                a copy, because reading a truncated map kills the process, and after the copy,
                because the file may have changed in between.
        """
        return Columns(*flatten(tree), indices, check)

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays that `gather` would make, apart from what objects refer to."""
        items = [array.dtype.itemsize * prod(array.shape[1:]) for array in self._arrays]
        return len(self) * sum(items)

    def __getitem__(self, key: slice) -> "Columns":
        return Columns(
            self._arrays, self._unflatten, self._indices[key], self._check, self._are_new
        )

    def gather(self, allocate: Allocate = np.empty) -> Tree:
        """Copy the elements into new arrays.

        Args:
            allocate: Creates an array from a shape and a dtype. Not called for arrays of Python
                objects.

        Raises:
            RaggedError: If the items of a `LazyColumn` do not fit into one array.
        """
        if self._check is None:
            return self._unflatten([self._gather_array(array, allocate) for array in self._arrays])
        self._check()
        gathered = [self._gather_array(array, allocate) for array in self._arrays]
        self._check()
        return self._unflatten(gathered)

    def _gather_array(self, array: AnyArray | LazyColumn, allocate: Allocate) -> AnyArray:
        indices = self._indices
        if array.dtype.hasobject and isinstance(array, np.ndarray):
            # Indexing with a slice returns a view, hence the copy.
            return array[as_numpy_index(indices)].copy()
        if not isinstance(array, np.ndarray):
            return array.gather(indices, allocate)
        out = allocate((len(indices), *array.shape[1:]), array.dtype)
        if isinstance(indices, range):
            out[:] = array[as_numpy_index(indices)]
        else:
            # All indices are in bounds, so `clip` changes none. In the default mode, NumPy
            # buffers the output, which is one more copy.
            array.take(indices, axis=0, out=out, mode="clip")
        return out

    def gather_leaf(self, select: Callable[[Tree], object]) -> AnyArray:
        """Copy one of the columns into a new array, and none of the others.

        Args:
            select: Returns the leaf of one column from the tree of all.

        >>> import numpy as np
        >>> columns = Columns.of({"x": np.zeros((2, 9)), "y": np.array([3, 4])}, range(2))
        >>> columns.gather_leaf(lambda tree: tree["y"])
        array([3, 4])
        """
        numbers = [_ColumnNumber(number) for number in range(len(self._arrays))]
        chosen = select(self._unflatten(numbers))
        if not isinstance(chosen, _ColumnNumber):
            raise RaggedError(f"{chosen!r:.100} is not a column")
        array = self._arrays[chosen.number]
        return Columns([array], itemgetter(0), self._indices, self._check).gather()

    @property
    def holds_lists(self) -> bool:
        """Whether some of the columns hold an object for each item."""
        return any(not isinstance(array, np.ndarray) and array.is_list for array in self._arrays)

    @property
    def holds_objects(self) -> bool:
        """Whether some of the arrays hold Python objects: strings or bytes."""
        return any(array.dtype.hasobject for array in self._arrays)

    def rows(self) -> list[Element]:
        """Return the elements as a list. Each one is a view of memory that is only theirs.

        Large items of a list are not gathered: most of them need not be copied.
        """
        if self._are_new and isinstance(self._indices, range):
            views = [
                cast("AnyArray", array)[as_numpy_index(self._indices)] for array in self._arrays
            ]
            return split_rows(self._unflatten(views), len(self))
        if not any(map(_reads_by_item, self._arrays)):
            try:
                return split_rows(self.gather(), len(self))
            except RaggedError:
                pass
        columns = [
            list(self._gather_array(array, np.empty))
            if isinstance(array, np.ndarray)
            else array.items(self._indices)
            for array in self._arrays
        ]
        return [self._unflatten(row) for row in zip(*columns, strict=True)]


@final
class _ColumnNumber:
    """Stands for a column in a tree of columns."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return "..."


def _reads_by_item(array: AnyArray | LazyColumn) -> bool:
    if isinstance(array, np.ndarray):
        return False
    if array.has_own_items or not array.is_list:
        return array.has_own_items
    return prod(array.shape[1:]) * array.dtype.itemsize > _LARGE_ITEM_BYTES


def as_numpy_index(indices: Span) -> slice | Indices:
    """Return an index for arrays: a slice for a range, which NumPy would convert item by item.

    >>> as_numpy_index(range(4, -1, -2))
    slice(4, None, -2)
    """
    if not isinstance(indices, range):
        return indices
    stop = indices.stop if indices.stop >= 0 else None  # backwards, up to and including index 0
    return slice(indices.start, stop, indices.step)


@runtime_checkable
class SupportsColumns(Protocol):
    """A source that can read many records as columns.

    Columns hold numbers and times, or strings as Python objects. Records that do not fit into
    columns, such as ragged ones, may be returned as rows.
    """

    @property
    def is_columnar(self) -> bool: ...

    def read_columns(self, indices: Span, /) -> Columns | list[Element]: ...


def is_columnar(arrays: Tree) -> bool:
    """Return whether a batch taken from columns equals the batch that stacking the items makes.

    This does not hold for strings, which are stacked to the width of the longest string among
    them, or for objects, which are stacked according to their types.
    """
    return all(
        array.dtype.kind in "biufcmM" and array.dtype.isnative
        for _, array in leaves_with_paths(arrays)
    )


def split_rows(arrays: Tree, count: int) -> list[Element]:
    """Turn a pytree of arrays into a list of `count` pytrees of their items.

    >>> import numpy as np
    >>> split_rows({"x": np.array(["a", "b"]), "y": None}, 2)
    [{'x': np.str_('a'), 'y': None}, {'x': np.str_('b'), 'y': None}]
    """
    inner = children(arrays)
    if inner is None:
        return list(arrays)
    build = builder(arrays)
    if not inner[1]:
        return [build(()) for _ in range(count)]
    columns: list[Sequence[Element]] = [split_rows(child, count) for child in inner[1]]
    if type(arrays) is dict:  # the most frequent type, in half the time
        keys = tuple(cast("dict[Hashable, Tree]", arrays))
        return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]
    return [build(values) for values in zip(*columns, strict=True)]
