"""What the values of one column are: types, shapes, ranges, lengths, classes and images."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast, final

import numpy as np

from gristmill._data.statistics.categories import Categories
from gristmill._data.statistics.distribution import Distribution, distribute
from gristmill._data.statistics.image_sizes import ImageSizes, measure_images
from gristmill._data.statistics.kinds import Values, sort_values
from gristmill._data.statistics.leaf_statistics import count_values
from gristmill._data.statistics.leaves import Column
from gristmill.types import AnyArray

T = TypeVar("T")

Axes = tuple[int | None, ...]
"""The sizes of the axes of an array; `None` for an axis that differs between the values."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnSummary:
    """What the values of a column are, as a value that can be merged.

    >>> summary = summarize_column(["a", "bcd", None])
    >>> summary.types, summary.num_null, summary.lengths.high
    (['str', 'null'], 1, 3)
    """

    num_values: int
    """Values, with nulls."""
    num_null: int
    shapes: Mapping[tuple[str, int], Axes]
    """The axes of the values, by the name of the type and the number of axes."""
    numbers: Distribution | None
    """Of all numbers in all values."""
    lengths: Distribution | None
    """Characters of strings, bytes, items of lists and of arrays with one axis."""
    categories: Categories
    times: tuple[Any, Any] | None
    """The first and the last time."""
    images: ImageSizes | None

    @property
    def types(self) -> list[str]:
        """The types with their shapes, with `?` for the axes that differ, such as `uint8[3, ?]`."""
        shown = [
            f"{name}[{', '.join('?' if size is None else str(size) for size in axes)}]"
            if axes
            else name
            for (name, _), axes in self.shapes.items()
        ]
        return [*shown, *(["null"] if self.num_null else [])]

    @property
    def has_axes(self) -> bool:
        """Whether some values are arrays, which may contain NaN among other numbers."""
        return any(num_axes for _, num_axes in self.shapes)

    def merge(self, other: "ColumnSummary") -> "ColumnSummary":
        """Return the summary of the values of both."""
        shapes = dict(self.shapes)
        for key, axes in other.shapes.items():
            shapes[key] = _merge_axes(shapes.get(key, axes), axes)
        return ColumnSummary(
            num_values=self.num_values + other.num_values,
            num_null=self.num_null + other.num_null,
            shapes=shapes,
            numbers=_merge(self.numbers, other.numbers, Distribution.merge),
            lengths=_merge(self.lengths, other.lengths, Distribution.merge),
            categories=self.categories.merge(other.categories),
            times=_merge(self.times, other.times, _merge_times),
            images=_merge(self.images, other.images, ImageSizes.merge),
        )


def summarize_column(column: Column) -> ColumnSummary:
    """Return the summary of the values of a column in one block."""
    values = sort_values(column)
    shapes: dict[tuple[str, int], Axes] = {}
    for name, axes in _shapes(column):
        key = name, len(axes)
        shapes[key] = _merge_axes(shapes.get(key, axes), axes)
    numbers: Distribution | None = None
    for array in values.arrays:
        if array.size:
            numbers = _merge(numbers, distribute(array), Distribution.merge)
    lengths = _lengths(values)
    return ColumnSummary(
        num_values=len(column),
        num_null=values.num_null,
        shapes=shapes,
        numbers=numbers,
        lengths=distribute(np.array(lengths)) if lengths else None,
        categories=count_values(values),
        times=_times(values.others),
        images=measure_images(values.blobs),
    )


def _shapes(column: Column) -> Iterable[tuple[str, tuple[int, ...]]]:
    if isinstance(column, np.ndarray):
        if not len(column):
            return []
        return [(_dtype_name(column), column.shape[1:])]
    return dict.fromkeys(_shape(value) for value in column if value is not None)


def _shape(value: Any) -> tuple[str, tuple[int, ...]]:
    if isinstance(value, np.ndarray | np.generic):
        array = cast("AnyArray", value)
        return _dtype_name(array), array.shape
    return type(value).__name__, ()


def _dtype_name(value: AnyArray) -> str:
    kinds = {"U": "str", "S": "bytes"}
    return kinds.get(value.dtype.kind, str(value.dtype))


def _lengths(values: Values) -> list[int]:
    lengths = [*map(len, values.strings), *map(len, values.blobs), *map(len, values.lists)]
    for array in [*values.arrays, *values.others]:
        if array.ndim == 2:
            lengths += [array.shape[1]] * len(array)
    return lengths


def _times(arrays: Iterable[AnyArray]) -> tuple[Any, Any] | None:
    total: tuple[Any, Any] | None = None
    for array in arrays:
        if array.dtype.kind in "mM":
            present = array[~np.isnat(array)]
            if present.size:
                total = _merge(total, (present.min(), present.max()), _merge_times)
    return total


def _merge_axes(first: Axes, second: Axes) -> Axes:
    return tuple(a if a == b else None for a, b in zip(first, second, strict=True))


def _merge_times(first: tuple[Any, Any], second: tuple[Any, Any]) -> tuple[Any, Any]:
    try:
        return min(first[0], second[0]), max(first[1], second[1])
    except TypeError:  # a time and a duration
        return first


def _merge(first: T | None, second: T | None, function: Callable[[T, T], T]) -> T | None:
    if first is None or second is None:
        return second if first is None else first
    return function(first, second)
