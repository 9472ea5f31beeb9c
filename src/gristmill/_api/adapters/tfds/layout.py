"""Describes the records of a TFDS dataset in a form that can be used without TFDS."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from types import ModuleType
from typing import Any, Literal, TypeAlias, cast, final

import numpy as np

from gristmill._base.trees.tree import flatten, map_leaves
from gristmill.types import AnyArray, AnyDType, Tree

Feature: TypeAlias = Any
"""A `tfds.features.FeatureConnector`. TFDS is optional, so its types cannot be imported here."""

FieldKind: TypeAlias = Literal["numbers", "string", "image"]
"""How a field is stored in a `tf.train.Example`, if it can be decoded without TFDS."""


@final
@dataclass(frozen=True)
class FieldSpec:
    """One field of a record."""

    path: tuple[str, ...]
    shape: tuple[int, ...] | None = None
    """Shape of the value, or None if it varies or is unknown."""
    dtype: AnyDType | None = None
    """Dtype of numbers and images, or None."""
    kind: FieldKind | None = None
    """How the field is stored, or None if only TFDS can decode it."""

    @property
    def key(self) -> str:
        """Name of the field in a `tf.train.Example`."""
        return "/".join(self.path)

    @property
    def num_bytes(self) -> int | None:
        """Size of the decoded value, or None if it varies."""
        if self.shape is None or self.dtype is None:
            return None
        return prod(self.shape) * self.dtype.itemsize

    def fits(self, value: object) -> bool:
        """Return whether a value that TFDS decoded fits into a column."""
        if self.kind == "string":
            return type(value) is bytes
        if not isinstance(value, np.ndarray | np.generic):
            return False
        array = cast("AnyArray | np.generic", value)
        return array.dtype == self.dtype and array.shape == self.shape

    def to_dtype(self, value: object) -> object:
        """Return a Python number as a NumPy scalar.

        TFDS data sources return Python numbers where `tfds.as_numpy` returns NumPy scalars.
        """
        if self.shape == () and self.dtype is not None and isinstance(value, bool | int | float):
            return self.dtype.type(value)
        return value


@final
class RecordLayout:
    """The fields to read of each record, and the tree that they form.

    Args:
        tree: The tree, with the index of a field in `fields` as each leaf.
        fields: The fields.
    """

    def __init__(self, tree: Tree, fields: Sequence[FieldSpec]) -> None:
        self._tree = tree
        self.fields = tuple(fields)
        self.is_plain = all(field.kind is not None for field in fields)
        """Whether records can be decoded without TFDS."""
        self.is_columnar = bool(fields) and all(
            field.num_bytes is not None or field.kind == "string" for field in fields
        )
        """Whether all fields fit into columns."""

    @property
    def record_bytes(self) -> int | None:
        """Size of a decoded record, or None if it varies."""
        sizes = [field.num_bytes for field in self.fields]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def build(self, values: Sequence[object]) -> Tree:
        """Return a record, or a tree of columns, from one value for each field."""
        return map_leaves(values.__getitem__, self._tree)


def make_layout(tfds: ModuleType, features: Feature, supervised_keys: Tree = None) -> RecordLayout:
    """Return the layout of the records of a dataset.

    Args:
        tfds: The module `tensorflow_datasets`.
        features: The features of the dataset's `info`.
        supervised_keys: The names of the fields to read, in a tree of tuples and dicts. By default
            all fields are read.
    """
    fields: list[FieldSpec] = []
    tree = _add_fields(tfds, features, (), fields)
    if supervised_keys is not None:
        tree = map_leaves(tree.__getitem__, _sort_dicts(supervised_keys))
    used: list[int] = list(dict.fromkeys(flatten(tree)[0]))
    return RecordLayout(map_leaves(used.index, tree), [fields[number] for number in used])


def _sort_dicts(keys: Tree) -> Tree:
    """Return a tree of names with its dicts sorted, since TFDS stores them in no order."""
    if isinstance(keys, dict):
        named = cast("dict[str, Tree]", keys)
        return {name: _sort_dicts(named[name]) for name in sorted(named)}
    if isinstance(keys, tuple):
        return tuple(_sort_dicts(key) for key in cast("tuple[Tree, ...]", keys))
    return keys


def _add_fields(
    tfds: ModuleType, feature: Feature, path: tuple[str, ...], fields: list[FieldSpec]
) -> Tree:
    """Append the fields of a feature to `fields`, and return the tree of their indices."""
    if type(feature) is tfds.features.FeaturesDict:  # a derived class may decode differently
        names = sorted(feature)  # the order of TFDS records
        return {name: _add_fields(tfds, feature[name], (*path, name), fields) for name in names}
    fields.append(_make_field(tfds, feature, path))
    return len(fields) - 1


def _make_field(tfds: ModuleType, feature: Feature, path: tuple[str, ...]) -> FieldSpec:
    decoded, stored = feature.get_tensor_info(), feature.get_serialized_info()
    tensor_info = tfds.features.TensorInfo
    if type(decoded) is not tensor_info or type(stored) is not tensor_info:
        return FieldSpec(path)  # it consists of several tensors
    dtype = np.dtype(decoded.np_dtype)
    if None in decoded.shape or (dtype.kind not in "biufO"):
        return FieldSpec(path)
    shape = tuple(int(size) for size in decoded.shape)
    is_stored_unchanged = stored.shape == decoded.shape and np.dtype(stored.np_dtype) == dtype
    kind = type(cast(object, feature))
    if dtype.kind == "O":
        is_string = (
            is_stored_unchanged and not shape and kind in (tfds.features.Text, tfds.features.Tensor)
        )
        return FieldSpec(path, (), None, "string") if is_string else FieldSpec(path)
    number_kinds = (tfds.features.Tensor, tfds.features.Scalar, tfds.features.ClassLabel)
    if kind in number_kinds and is_stored_unchanged and _is_decoded_by_cast(dtype):
        return FieldSpec(path, shape, dtype, "numbers")
    if kind is tfds.features.Image and dtype == np.uint8 and len(shape) == 3:
        return FieldSpec(path, shape, dtype, "image")
    return FieldSpec(path, shape, dtype)


def _is_decoded_by_cast(dtype: AnyDType) -> bool:
    """Return whether TFDS decodes numbers of a dtype by a cast of the stored numbers."""
    if dtype.kind == "f":
        return dtype.itemsize >= 4
    return dtype != np.uint64  # which is stored as signed integers
