"""Many elements as one pytree of arrays with a common first axis."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gristmill._tree import builder, children, flatten, leaves_with_paths
from gristmill.types import Element, Span, Tree


class Column(Protocol):
    """What columns are gathered from: an array, or what gives other items than it holds."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, part: Any, /) -> Any:
        """Give a slice, which may still have another dtype: who assigns it to an array casts it."""
        ...

    def take(self, indices: Any, /, axis: int, out: NDArray[Any], mode: Any) -> Any:
        """Copy some items into an array of the dtype that it tells."""
        ...


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
        arrays: Sequence[Column],
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
        """Copy the picked elements into fresh arrays that belong to nobody else."""
        picks = self._picks
        made: list[NDArray[Any]] = []
        for array in self._arrays:
            if array.dtype.hasobject:
                # Of a range a slice, which is then copied, so that it belongs to nobody else.
                made.append(array[_as_slice(picks)].copy())
                continue
            out = allocate((len(picks), *array.shape[1:]), array.dtype)
            if isinstance(picks, range):
                out[:] = array[_as_slice(picks)]
            else:
                # `clip` changes nothing, as all are in bounds, but by default NumPy makes a copy.
                array.take(picks, axis=0, out=out, mode="clip")
            made.append(out)
        return self._unflatten(made)

    @property
    def holds_objects(self) -> bool:
        """Whether some of the arrays hold Python objects: texts or bytes."""
        return any(array.dtype.hasobject for array in self._arrays)

    def rows(self) -> list[Element]:
        """Give the elements one by one, as views of freshly gathered memory."""
        return split_rows(self.gather(), len(self))


def _as_slice(picks: Span) -> Any:
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
