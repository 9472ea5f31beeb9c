"""What the records of a TFDS dataset hold, in words that need no TFDS."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast, final

import numpy as np

from gristmill._tree import flatten, map_leaves
from gristmill.types import Tree

NUMBERS, TEXT, PICTURE = "numbers", "text", "picture"
"""Kinds of values that we take out of a message ourselves."""


@final
@dataclass(frozen=True)
class Leaf:
    """One value of a record."""

    path: tuple[str, ...]
    shape: tuple[int, ...] | None = None
    """None if it varies, or is not known."""
    dtype: np.dtype[Any] | None = None
    """Of numbers; else None."""
    kind: str | None = None
    """How it is stored, if that is something plain; else TFDS alone decodes it."""

    @property
    def key(self) -> str:
        """The name that a message has for it."""
        return "/".join(self.path)

    @property
    def num_bytes(self) -> int | None:
        """What it takes in memory, if that is always the same."""
        if self.shape is None or self.dtype is None:
            return None
        return prod(self.shape) * self.dtype.itemsize

    def fits(self, value: Any) -> bool:
        """Tell whether a value that TFDS gave goes into a column."""
        if self.kind == TEXT:
            return type(value) is bytes
        is_numbers = isinstance(value, np.ndarray | np.generic)
        array: Any = value
        return is_numbers and array.dtype == self.dtype and array.shape == self.shape

    def typed(self, value: Any) -> Any:
        """Give a number in its own type: TFDS's data sources give Python's, `as_numpy` NumPy's."""
        if self.shape == () and self.dtype is not None and isinstance(value, bool | int | float):
            return self.dtype.type(value)
        return value


@final
class Layout:
    """The values that are wanted of each record, and the tree that they make up."""

    def __init__(self, tree: Tree, leaves: Sequence[Leaf]) -> None:
        """Take a tree in which each value stands as its number in `leaves`."""
        self._tree = tree
        self.leaves = tuple(leaves)
        self.is_plain = all(leaf.kind is not None for leaf in leaves)
        """Whether such records can be decoded without TFDS."""
        self.is_columnar = bool(leaves) and all(
            leaf.num_bytes is not None or leaf.kind == TEXT for leaf in leaves
        )
        """Whether all of their values go into columns."""

    @property
    def record_bytes(self) -> int | None:
        """What a record takes in memory, if that is always the same."""
        sizes = [leaf.num_bytes for leaf in self.leaves]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def build(self, values: Sequence[Any]) -> Tree:
        """Make a record, or a tree of columns, out of one value for each leaf."""
        return map_leaves(values.__getitem__, self._tree)


def describe(tfds: Any, features: Any, supervised_keys: Any = None) -> Layout:
    """Find out what the records of a dataset hold.

    Args:
        tfds: The library.
        features: Those of the dataset, as its `info` has them.
        supervised_keys: The names of the values that are wanted, in tuples and dicts; all of them
            by default.
    """
    leaves: list[Leaf] = []
    tree = _number(tfds, features, (), leaves)
    if supervised_keys is not None:
        tree = map_leaves(tree.__getitem__, _in_order(supervised_keys))
    used: list[int] = list(dict.fromkeys(flatten(tree)[0]))
    return Layout(map_leaves(used.index, tree), [leaves[number] for number in used])


def _in_order(keys: Any) -> Tree:
    """Give a tree of names with its dicts sorted; TFDS stores them without an order."""
    if isinstance(keys, dict):
        named = cast("dict[str, Any]", keys)
        return {name: _in_order(named[name]) for name in sorted(named)}
    if isinstance(keys, tuple):
        return tuple(_in_order(key) for key in cast("tuple[Any, ...]", keys))
    return keys


def _number(tfds: Any, feature: Any, path: tuple[str, ...], leaves: list[Leaf]) -> Tree:
    """Add the leaves of a feature, and give the tree of their numbers."""
    if type(feature) is tfds.features.FeaturesDict:  # one derived from it may decode otherwise
        names = sorted(feature)  # as TFDS has them in its records
        return {name: _number(tfds, feature[name], (*path, name), leaves) for name in names}
    leaves.append(_leaf(tfds, feature, path))
    return len(leaves) - 1


def _leaf(tfds: Any, feature: Any, path: tuple[str, ...]) -> Leaf:
    made, stored = feature.get_tensor_info(), feature.get_serialized_info()
    tensor_info: Any = tfds.features.TensorInfo
    if type(made) is not tensor_info or type(stored) is not tensor_info:
        return Leaf(path)  # of several parts
    dtype = np.dtype(made.np_dtype)
    if None in made.shape or (dtype.kind not in "biufO"):
        return Leaf(path)
    shape = tuple(int(size) for size in made.shape)
    is_stored_as_is = stored.shape == made.shape and np.dtype(stored.np_dtype) == dtype
    kind = cast("type[Any]", type(feature))
    if dtype.kind == "O":
        is_text = (
            is_stored_as_is and not shape and kind in (tfds.features.Text, tfds.features.Tensor)
        )
        return Leaf(path, (), None, TEXT) if is_text else Leaf(path)
    plain = (tfds.features.Tensor, tfds.features.Scalar, tfds.features.ClassLabel)
    if kind in plain and is_stored_as_is and _is_plain(dtype):
        return Leaf(path, shape, dtype, NUMBERS)
    if kind is tfds.features.Image and dtype == np.uint8 and len(shape) == 3:
        return Leaf(path, shape, dtype, PICTURE)
    return Leaf(path, shape, dtype)


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Tell whether TFDS gives numbers of a type as the message has them, cast to that type."""
    if dtype.kind == "f":
        return dtype.itemsize >= 4
    return dtype != np.uint64  # stored as integers with a sign
