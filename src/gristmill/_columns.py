"""Many elements as one pytree of arrays with a common first axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from gristmill._tree import builder, children, leaves_with_paths, map_leaves
from gristmill.types import Element, Indices, Span, Tree


@final
@dataclass(frozen=True, slots=True)
class Columns:
    """The elements `picks` of `arrays`, not gathered before somebody needs them.

    Slicing and taking only touch `picks`, so records travel from a source to their batch with one
    copy in all.

    >>> import numpy as np
    >>> columns = Columns({"x": np.array([10, 20, 30, 40])}, range(1, 4))
    >>> columns[1:].gather()
    {'x': array([30, 40])}
    """

    arrays: Tree
    picks: Span

    def __len__(self) -> int:
        return len(self.picks)

    def __getitem__(self, part: slice) -> "Columns":
        return Columns(self.arrays, self.picks[part])

    def take(self, chosen: Indices) -> "Columns":
        """Give only the chosen elements."""
        picks = self.picks
        if isinstance(picks, range):
            picks = np.arange(picks.start, picks.stop, picks.step, dtype=np.int64)
        return Columns(self.arrays, picks[chosen])

    def gather(self) -> Tree:
        """Copy the picked elements into fresh arrays that belong to nobody else."""
        picks = self.picks
        if isinstance(picks, range):
            if picks.step > 0:
                part = slice(picks.start, picks.stop, picks.step)
                return map_leaves(lambda array: array[part].copy(), self.arrays)
            picks = np.array(picks, dtype=np.int64)
        return map_leaves(lambda array: array.take(picks, axis=0), self.arrays)

    def rows(self) -> list[Element]:
        """Give the elements one by one, as views of freshly gathered memory."""
        return split_rows(self.gather(), len(self))


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
