"""Statistics of the values at one leaf of the elements, for normalisation and class weights."""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._data.statistics.categories import (
    MAX_CATEGORIES,
    Categories,
    count_categories,
    given_categories,
)
from gristmill._data.statistics.kinds import LeftOut, Values, count_left_out, sort_values
from gristmill._data.statistics.leaves import Column
from gristmill._data.statistics.moments import Moments, moments_of, no_moments
from gristmill.errors import PlanError
from gristmill.types import AnyArray

Number: TypeAlias = "float | NDArray[np.float64]"
Bound: TypeAlias = "int | float | AnyArray | None"

_MAX_SHOWN = 4


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LeafStatistics:
    """Statistics of the numbers at one leaf of the elements.

    Without an axis, all numbers of all elements are summarised together. With an axis, `mean`,
    `std`, `min` and `max` are arrays with an entry for each index of that axis.

    >>> import gristmill
    >>> gristmill.statistics([{"x": 1.0}, {"x": 3.0}, {"x": None}])["x"]
    <LeafStatistics: 2 values, 1 missing, mean 2, std 1, 1 to 3>
    """

    count: int
    """Finite numbers, over all elements and indices."""
    mean: Number
    """The mean of the finite numbers, in 64 bits; NaN if there are none."""
    std: Number
    """The standard deviation of the population: the root of the mean squared distance from the
    mean."""
    min: Bound
    """The smallest number; `None` if there are none."""
    max: Bound
    """The largest number; `None` if there are none."""
    num_missing: int
    """Values that are `None`, and numbers that are NaN."""
    num_infinite: int
    """Infinite numbers. They are not part of the mean."""
    counts: Mapping[Hashable, int] | None
    """How often each value comes, the most frequent first, such as labels.

    Counted are integers, booleans and short strings, one per element, up to 1,000 different ones.
    `None` for other leaves."""
    num_left_out: Mapping[LeftOut, int]
    """Values that have no mean, such as strings and encoded images, by what they are."""

    def __repr__(self) -> str:
        parts = [f"{self.count:,} values"]
        if self.num_missing:
            parts.append(f"{self.num_missing:,} missing")
        if self.num_infinite:
            parts.append(f"{self.num_infinite:,} infinite")
        if self.count:
            parts += [f"mean {show_numbers(self.mean)}", f"std {show_numbers(self.std)}"]
        if self.min is not None:
            parts.append(f"{show_numbers(self.min)} to {show_numbers(self.max)}")
        if self.counts is not None:
            parts.append(f"{len(self.counts):,} different")
        parts += [f"{count:,} {kind} left out" for kind, count in self.num_left_out.items()]
        return f"<LeafStatistics: {', '.join(parts)}>"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class LeafSummary:
    """What the statistics of a leaf are computed from, as a value that can be merged."""

    num_null: int
    moments: Moments
    categories: Categories
    is_vector: bool
    """Whether the channels are those of an axis."""
    left_out: Mapping[LeftOut, int]

    def merge(self, other: "LeafSummary") -> "LeafSummary":
        """Return the summary of the values of both."""
        first, second = self.moments, other.moments
        if len(first.count) != len(second.count):
            # Nulls and strings alone have one channel and no numbers.
            first = first if _has_numbers(first) else no_moments(len(second.count))
            second = second if _has_numbers(second) else no_moments(len(first.count))
        if len(first.count) != len(second.count):
            sizes = f"{len(first.count)} entries in some elements and {len(second.count)} in others"
            raise PlanError(
                f"`axis` has {sizes}. Make them equal in a map, or call `statistics` without it."
            )
        return LeafSummary(
            num_null=self.num_null + other.num_null,
            moments=first.merge(second),
            categories=self.categories.merge(other.categories),
            is_vector=self.is_vector or other.is_vector,
            left_out=Counter(self.left_out) + Counter(other.left_out),
        )

    def statistics(self) -> LeafStatistics:
        """Return the statistics."""
        moments, counts = self.moments, self.categories.counts

        def shown(values: NDArray[np.float64]) -> Number:
            return values if self.is_vector else float(values[0])

        def bound(values: NDArray[np.object_]) -> Bound:
            return np.array(values.tolist()) if self.is_vector else values[0]

        return LeafStatistics(
            count=int(moments.count.sum()),
            mean=shown(np.where(moments.count == 0, np.nan, moments.mean)),
            std=shown(moments.std),
            min=bound(moments.lows),
            max=bound(moments.highs),
            num_missing=self.num_null + int(moments.num_nan.sum()),
            num_infinite=int(moments.num_infinite.sum()),
            counts=dict(sorted(counts.items(), key=_by_count)) if counts else None,
            num_left_out=dict(self.left_out),
        )


def summarize_leaf(column: Column, *, axis: int | None) -> LeafSummary:
    """Return the summary of a column of one block.

    Args:
        column: The values.
        axis: The axis of each value that keeps statistics of its own. Values without that axis are
            summarised by one number.
    """
    values = sort_values(column)
    total = LeafSummary(
        num_null=values.num_null,
        moments=no_moments(1),
        categories=count_values(values),
        is_vector=False,
        left_out=count_left_out(values),
    )
    for array in values.arrays:
        part = LeafSummary(
            num_null=0,
            moments=moments_of(_as_rows(array, axis)),
            categories=Categories(counts={}),
            is_vector=_has_axis(array, axis),
            left_out={},
        )
        total = total.merge(part)
    return total


def count_values(values: Values) -> Categories:
    """Return how often each integer, boolean or string comes, if there is one per element."""
    total = count_categories(values.strings)
    for array in values.arrays:
        if array.ndim == 1:
            total = total.merge(_count_numbers(array))
    return total


def show_numbers(numbers: object) -> str:
    """Return one number, or several in brackets, with four digits.

    >>> show_numbers(0.123456), show_numbers(np.array([1.0, 2.5]))
    ('0.1235', '[1, 2.5]')
    """
    if not isinstance(numbers, np.ndarray):
        if not isinstance(numbers, float):
            return str(numbers)
        return f"{numbers:.0f}" if 1e4 <= abs(numbers) < 1e9 else f"{numbers:.4g}"
    listed = cast("AnyArray", numbers).tolist()
    shown = [show_numbers(number) for number in listed[:_MAX_SHOWN]]
    return f"[{', '.join([*shown, *(['...'] if len(listed) > _MAX_SHOWN else [])])}]"


def _by_count(item: tuple[Hashable, int]) -> tuple[int, str]:
    return -item[1], str(item[0])


def _has_axis(array: AnyArray, axis: int | None) -> bool:
    num_axes = array.ndim - 1
    return axis is not None and -num_axes <= axis < num_axes


def _as_rows(array: AnyArray, axis: int | None) -> AnyArray:
    """Return an array of shape (values, channels)."""
    if axis is None or not _has_axis(array, axis):
        return array.reshape(-1, 1)
    moved = np.moveaxis(array, axis if axis < 0 else axis + 1, -1)
    return moved.reshape(-1, moved.shape[-1])


def _has_numbers(moments: Moments) -> bool:
    return bool((moments.count + moments.num_nan + moments.num_infinite).any())


def _count_numbers(array: AnyArray) -> Categories:
    if array.dtype.kind == "f":
        return Categories(counts=None)
    distinct, counts = np.unique(array, return_counts=True)
    if len(distinct) > MAX_CATEGORIES:
        return Categories(counts=None)
    return given_categories(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))
