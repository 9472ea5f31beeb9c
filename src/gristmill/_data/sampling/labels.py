"""The label of each record, from what the user passes: an array, a column, or a function."""

from collections.abc import Callable, Sequence, Sized
from typing import Any, TypeAlias, cast

import numpy as np

from gristmill._base.trees.columns import RaggedError, SupportsColumns
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import (
    AnyArray,
    Element,
    Indices,
    RandomAccessDataSource,
    SupportsArray,
    SupportsGetItems,
)

Labels: TypeAlias = str | int | Callable[[Element], Any] | Sequence[Any] | AnyArray
"""A value for each record: all values, the key of a column, or a function of a record."""

_BLOCK = 4096
"""The number of records that are read at a time."""


def as_labels(name: str, labels: object, source: RandomAccessDataSource[Element]) -> AnyArray:
    """Return the value of each record. Reads the records if `labels` is a key or a function.

    Args:
        name: The name of the argument, for error messages.
        labels: All values, or the key of a column of the records, or a function of a record.
        source: The records.

    >>> as_labels("stratify", "y", [{"x": 1, "y": 0}, {"x": 2, "y": 1}]).tolist()
    [0, 1]
    """
    num_records = len(source)
    if isinstance(labels, str | int):
        values = _as_array(name, _read_column(name, labels, source))
    elif callable(labels):
        rows = (row for some in _blocks(source) for row in some)
        values = _as_array(name, [_checked(name, labels(row)) for row in rows])
    elif isinstance(labels, Sized | SupportsArray):
        values = _as_array(name, labels)
    else:
        raise PlanTypeError(
            f"`{name}` must be one value for each record, the key of a column, or a function of a "
            f"record, got {labels!r:.100}."
        )
    if len(values) != num_records:
        raise PlanError(
            f"`{name}` must have a value for each of the {num_records} records, got {len(values)}."
        )
    return values


def as_classes(labels: AnyArray) -> tuple[Indices, Indices]:
    """Return the number of the class of each record, and the number of records of each class.

    >>> numbers, counts = as_classes(np.array(["cat", "dog", "cat"]))
    >>> numbers.tolist(), counts.tolist()
    ([0, 1, 0], [2, 1])
    """
    try:
        _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    except TypeError:  # of several types, which have no order
        known: dict[object, int] = {}
        numbers = np.array([known.setdefault(label, len(known)) for label in labels.tolist()])
        counts = np.bincount(numbers)
    return numbers.astype(np.int64), counts.astype(np.int64)


def _read_column(
    name: str, key: str | int, source: RandomAccessDataSource[Element]
) -> list[Any] | AnyArray:
    if isinstance(source, SupportsColumns) and source.is_columnar:
        columns = source.read_columns(range(len(source)))
        if not isinstance(columns, list):
            try:
                return columns.gather_leaf(lambda tree: _item(name, tree, key))
            except RaggedError:
                pass
    return [_item(name, row, key) for some in _blocks(source) for row in some]


def _blocks(source: RandomAccessDataSource[Element]) -> Any:
    """Yield some records at a time."""
    count = len(source)
    for start in range(0, count, _BLOCK):
        block = range(start, min(start + _BLOCK, count))
        if isinstance(source, SupportsGetItems):
            yield cast("SupportsGetItems[Element]", source).__getitems__(block)
        else:
            yield [source[index] for index in block]


def _item(name: str, record: Any, key: str | int) -> Any:
    try:
        return _checked(name, record[key])
    except (LookupError, TypeError, ValueError):
        raise PlanError(
            f"`{name}` is {key!r}, but a record has no such item: {record!r:.100}. Pass the key of "
            "a column, a function of a record, or one value for each record."
        ) from None


def _checked(name: str, value: Any) -> Any:
    if value is None:
        raise PlanError(f"`{name}` must be a value for each record, got `None` for one of them.")
    return value


def _as_array(name: str, values: Any) -> AnyArray:
    try:
        array = np.asarray(values)
    except ValueError:  # of several lengths
        array = np.empty((0, 0))
    if array.ndim != 1:
        raise PlanError(
            f"`{name}` must be one number or string for each record, got values with a shape of "
            "their own. Pass a function that returns one value."
        )
    return array
