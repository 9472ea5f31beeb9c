"""Many elements as one pytree of arrays with a common first axis."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gristmill._tree import builder, children, flatten, leaves_with_paths
from gristmill.types import Element, Span, Tree


@runtime_checkable
class Column(Protocol):
    """What stands for an array that is not made before a batch is made of it."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def fill(self, out: NDArray[Any], picks: Span, /) -> None:
        """Write the picked items into an array of the dtype and the shape of theirs.

        Where they turn out to have several shapes, `RaggedError` is raised.
        """
        ...

    def items(self, picks: Span, /) -> list[Any]:
        """Give the picked items one by one, whatever shapes they have."""
        ...


class RaggedError(Exception):
    """The items of a column have several shapes. Never reaches the user."""


@final
class Columns:
    """The elements `picks` of some arrays, not gathered before somebody needs them.

    Slicing only touches `picks`, so records travel from a source to their batch with one
    copy in all.

    >>> import numpy as np
    >>> columns = Columns.of({"x": np.array([10, 20, 30, 40])}, range(1, 4))
    >>> columns[1:].gather()
    {'x': array([30, 40])}
    """

    __slots__ = ("_arrays", "_picks", "_unflatten")

    def __init__(
        self,
        arrays: Sequence[NDArray[Any] | Column],
        unflatten: Callable[[Sequence[Any]], Tree],
        picks: Span,
    ) -> None:
        self._arrays = arrays
        self._unflatten = unflatten
        self._picks = picks

    @staticmethod
    def of(tree: Tree, picks: Span) -> "Columns":
        """Give some elements of a tree of arrays."""
        return Columns(*flatten(tree), picks)

    def __len__(self) -> int:
        return len(self._picks)

    def __getitem__(self, part: slice) -> "Columns":
        return Columns(self._arrays, self._unflatten, self._picks[part])

    def pick(self, picks: Span) -> "Columns":
        """Give other elements of the same arrays."""
        return Columns(self._arrays, self._unflatten, picks)

    def gather(self, allocate: Callable[..., NDArray[Any]] = np.empty) -> Tree:
        """Copy the picked elements into fresh arrays that belong to nobody else.

        Raises `RaggedError` where those of a `Column` do not fit into one.
        """
        return self._unflatten([self._gathered(array, allocate) for array in self._arrays])

    def _gathered(
        self, array: NDArray[Any] | Column, allocate: Callable[..., NDArray[Any]]
    ) -> NDArray[Any]:
        picks = self._picks
        if array.dtype.hasobject and isinstance(array, np.ndarray):
            # Of a range a slice, which is then copied, so that it belongs to nobody else.
            return array[as_key(picks)].copy()
        out = allocate((len(picks), *array.shape[1:]), array.dtype)
        if not isinstance(array, np.ndarray):
            array.fill(out, picks)
        elif isinstance(picks, range):
            out[:] = array[as_key(picks)]
        else:
            # `clip` changes nothing, as all are in bounds, but by default NumPy makes a copy.
            array.take(picks, axis=0, out=out, mode="clip")
        return out

    @property
    def holds_objects(self) -> bool:
        """Whether some of the arrays hold Python objects: texts or bytes."""
        return any(array.dtype.hasobject for array in self._arrays)

    def rows(self) -> list[Element]:
        """Give the elements one by one, as views of freshly gathered memory."""
        try:
            return split_rows(self.gather(), len(self))
        except RaggedError:
            lists = [
                list(self._gathered(array, np.empty))
                if isinstance(array, np.ndarray)
                else array.items(self._picks)
                for array in self._arrays
            ]
            return [self._unflatten(row) for row in zip(*lists, strict=True)]


def as_key(picks: Span) -> Any:
    """Give what NumPy indexes with: it would go through a range one by one."""
    if not isinstance(picks, range):
        return picks
    stop = picks.stop if picks.stop >= 0 else None  # backwards, up to the first
    return slice(picks.start, stop, picks.step)


@runtime_checkable
class SupportsColumns(Protocol):
    """A source that gives many records as columns: of numbers and times, and texts as objects.

    Those that do not fit into columns, such as ragged ones, it may give as rows.
    """

    @property
    def is_columnar(self) -> bool: ...

    def read_columns(self, indices: Span, /) -> Columns | list[Element]: ...


def is_columnar(arrays: Tree) -> bool:
    """Tell whether batches taken from columns are those that stacking their items would make.

    Stacking texts takes the width of the longest among them, of objects whatever they are.
    """
    return all(
        array.dtype.kind in "biufcmM" and array.dtype.isnative
        for _, array in leaves_with_paths(arrays)
    )


def split_rows(arrays: Tree, count: int) -> list[Element]:
    """Turn a tree of arrays into a list of `count` trees of their items.

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
    columns: list[Sequence[Any]] = [split_rows(child, count) for child in inner[1]]
    return [build(values) for values in zip(*columns, strict=True)]
