"""Splits of a number of records into disjoint parts, the same in every epoch.

All records are put in one fixed random order, and each part is a range of it. Without classes, the
order is the keyed permutation of a shuffle, so that a part needs no memory and any record of it is
found in constant time. With classes, the order is an array, which is computed once.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, final

import numpy as np

from gristmill._base.checks import as_int
from gristmill._base.indices import as_indices
from gristmill._data.sampling.shuffle import shuffled
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import AnyArray, Indices, Span

_SUM_TOLERANCE = 1e-6


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SplitPart:
    """One part of a split: the records in some ranges of a fixed random order.

    >>> train, test = split_parts(10, [0.8, 0.2], seed=0)
    >>> train.keys(range(8)).tolist(), test.keys(range(2)).tolist()
    ([0, 4, 6, 7, 8, 3, 1, 9], [5, 2])
    """

    num_records: int
    ranges: tuple[tuple[int, int], ...]
    """Start and stop of each range."""
    seed: int
    order: AnyArray | None = None
    """The records in order. By default the order is that of a shuffle with the seed."""

    @cached_property
    def _ends(self) -> Indices:
        return np.cumsum([stop - start for start, stop in self.ranges], dtype=np.int64)

    @cached_property
    def _description(self) -> str:
        ranges = ", ".join(f"{start}:{stop}" for start, stop in self.ranges)
        shown = f"[{ranges}] of {self.num_records}, seed={self.seed}"
        if self.order is None:
            return shown
        return f"{shown}, stratified {zlib.crc32(self.order.tobytes()):08x}"

    def __repr__(self) -> str:
        return f"SplitPart({self._description})"

    def __str__(self) -> str:
        return self._description

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SplitPart) and self._description == other._description

    def __hash__(self) -> int:
        return hash(self._description)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def keys(self, offsets: Span) -> Indices:
        """Return the record at each of some offsets in the part."""
        wanted = as_indices(offsets)
        (first, _), *later = self.ranges
        offsets = wanted + first
        for (start, _), end in zip(later, self._ends[:-1], strict=True):
            is_beyond = wanted >= end
            offsets[is_beyond] = wanted[is_beyond] - end + start
        if self.order is None:
            return shuffled(offsets, num_records=self.num_records, seed=self.seed)
        return self.order[offsets].astype(np.int64)


def split_parts(
    num_records: int, fractions: object, *, seed: int, classes: Indices | None = None
) -> tuple[SplitPart, ...]:
    """Split records into parts of given sizes.

    Args:
        num_records: The number of records.
        fractions: A fraction of the records for each part, or the number of records of each part.
        seed: The seed of the random order.
        classes: The class of each record, if every part is to have its share of each class.
    """
    sizes = part_sizes(num_records, fractions)
    order = None if classes is None else _stratified_order(classes, sizes, seed)
    ends = np.cumsum(sizes).tolist()
    return tuple(
        SplitPart(num_records=num_records, ranges=((end - size, end),), seed=seed, order=order)
        for end, size in zip(ends, sizes, strict=True)
    )


def fold_parts(
    num_records: int, k: object, i: object, *, seed: int, classes: Indices | None = None
) -> tuple[SplitPart, SplitPart]:
    """Return all folds but one, and that fold. The first folds may have one record more.

    >>> others, fold = fold_parts(5, 2, 0, seed=0)
    >>> len(others), len(fold)
    (2, 3)
    """
    count = as_int("k", k, minimum=2)
    number = as_int("i", i, maximum=count - 1)
    if count > num_records:
        raise PlanError(f"`k` must be at most the number of records, {num_records}, got {count}.")
    each, more = divmod(num_records, count)
    sizes = [each + (fold < more) for fold in range(count)]
    folds = split_parts(num_records, sizes, seed=seed, classes=classes)
    (start, stop) = folds[number].ranges[0]
    around = ((0, start), (stop, num_records))
    others = SplitPart(
        num_records=num_records,
        ranges=tuple(ends for ends in around if ends[0] < ends[1]),
        seed=seed,
        order=folds[number].order,
    )
    return others, folds[number]


def part_sizes(num_records: int, fractions: object) -> list[int]:
    """Return the number of records of each part.

    >>> part_sizes(10, [0.5, 0.25, 0.25]), part_sizes(10, [7, 3])
    ([5, 3, 2], [7, 3])
    """
    if not isinstance(fractions, Sequence | np.ndarray) or isinstance(fractions, str | bytes):
        raise PlanTypeError(
            f"`fractions` must be a list such as [0.8, 0.2], got {fractions!r:.100}."
        )
    given = [_as_number(one) for one in cast("Sequence[object]", fractions)]
    if not given:
        raise PlanError("`fractions` must have at least one part, got none.")
    if any(not one > 0 for one in given):
        raise PlanError(f"`fractions` must be above 0, got {given}. Leave out empty parts.")
    if all(isinstance(one, int) for one in given) and given != [1]:
        if sum(given) != num_records:
            raise PlanError(
                f"`fractions` are the numbers of records {given}, which add up to {sum(given)}, "
                f"but there are {num_records} records. Pass fractions of 1, or add a part."
            )
        return cast("list[int]", given)
    if abs(sum(given) - 1) > _SUM_TOLERANCE:
        raise PlanError(
            f"`fractions` must add up to 1, got {given}, which add up to {sum(given):g}. Add a "
            "part for the records that you do not use."
        )
    ends = np.rint(np.cumsum(given) * num_records).astype(np.int64)
    ends[-1] = num_records
    sizes = np.diff(ends, prepend=0).tolist()
    if 0 in sizes:
        raise PlanError(
            f"A part of the split would be empty: {given} of {num_records} records are {sizes}. "
            "Use larger fractions."
        )
    return sizes


def _as_number(value: object) -> int | float:
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        raise PlanTypeError(f"`fractions` must be numbers, got {value!r:.100}.")
    number = cast(Any, value)
    return int(number) if isinstance(value, int | np.integer) else float(number)


def _stratified_order(classes: Indices, sizes: Sequence[int], seed: int) -> AnyArray:
    """Return the records of all parts one after the other, with each class in all of them.

    The records are sorted by class, in random order within a class, and distributed over the parts
    in turns: the j-th record of a part of s out of n is due at (j + 1/2) * n / s. So of any
    consecutive records, such as those of a class, each part gets its share to within a record or
    two.
    """
    count = len(classes)
    random = shuffled(np.arange(count), num_records=count, seed=seed)
    by_class = random[np.argsort(classes[random], kind="stable")]
    due = np.concatenate([(np.arange(size) + 0.5) * (count / size) for size in sizes])
    turns = np.repeat(np.arange(len(sizes)), sizes)[np.argsort(due, kind="stable")]
    parts = np.empty(count, dtype=np.int64)
    parts[by_class] = turns
    order = random[np.argsort(parts[random], kind="stable")]
    return order.astype(np.uint32) if count <= 2**32 else order
