"""Buckets by length: elements of similar length form batches, of one shape for each bucket."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import Any, Literal, TypeAlias, cast, final

import numpy as np

from gristmill._base.checks import as_bool, as_int, as_kind, as_list
from gristmill._base.short_repr import short_repr
from gristmill._base.trees.columns import Allocate
from gristmill._base.trees.tree import map_leaves
from gristmill._data.batching.pad import PadBatch
from gristmill.errors import BatchError, PlanError, PlanTypeError
from gristmill.types import Element, Indices, Tree

RemainderMode: TypeAlias = Literal["keep", "drop", "pad"]

LengthOf: TypeAlias = Hashable | Sequence[Hashable] | Callable[[Any], int] | None
"""The key of the array whose length counts, several keys, or a function of an element."""


@final
@dataclass(frozen=True)
class BucketByLength:
    """Batches elements of similar length, padded to one of a few lengths.

    An element goes into the first bucket whose boundary is not below its length. A bucket with
    enough elements becomes a batch, whose arrays are padded to the boundary. So there is one shape
    for each bucket, and JAX compiles one program for each.

    >>> from gristmill import MapDataset
    >>> words = [[1], [2, 2, 2], [3, 3], [4], [5, 5, 5, 5]]
    >>> ds = MapDataset.source(words).to_iter_dataset()
    >>> for batch in ds.apply(BucketByLength([2, 4], batch_sizes=2)):
    ...     print(batch.tolist())
    [[1, 0], [3, 3]]
    [[2, 2, 2, 0], [5, 5, 5, 5]]
    [[4, 0]]

    Args:
        boundaries: The largest length of each bucket, increasing.
        batch_sizes: The number of elements of a batch, for all buckets or for each.
        max_tokens: Instead of `batch_sizes`: as many elements as fit into this many values,
            including padding.
        length: What the length of an element is: the key of an array, several keys, of which the
            longest array counts, or a function of the element. By default, elements are arrays or
            lists of numbers.
        remainder: What to do at the end of the stream with elements that fill no batch: "keep" them
            as smaller batches, "drop" them, or "pad" the batches with empty rows.
        drop_longer: Whether to drop elements that are longer than the last boundary. By default
            they are an error.
        pad: How to pad. By default the arrays at the keys in `length` are padded with zeros on the
            right, and all arrays if `length` is a function.

    Raises:
        PlanError: The arguments contradict each other or are out of range.
        PlanTypeError: An argument has the wrong type.
    """

    boundaries: Sequence[int]
    batch_sizes: int | Sequence[int] | None = field(default=None, kw_only=True)
    max_tokens: int | None = field(default=None, kw_only=True)
    length: LengthOf = field(default=None, kw_only=True)
    remainder: RemainderMode = field(default="keep", kw_only=True)
    drop_longer: bool = field(default=False, kw_only=True)
    pad: PadBatch = field(default=PadBatch(), kw_only=True)

    def __repr__(self) -> str:
        return short_repr(self)

    def __post_init__(self) -> None:
        boundaries = _as_boundaries(self.boundaries)
        sizes = _as_sizes(self.batch_sizes, self.max_tokens, boundaries)
        if self.remainder not in ("keep", "drop", "pad"):
            raise PlanError(
                f'`remainder` must be "keep", "drop" or "pad", got {self.remainder!r:.100}.'
            )
        pad = as_kind("pad", self.pad, PadBatch, remedy="Pass `PadBatch(...)`.")
        if pad.length is not None or pad.multiple_of is not None:
            raise PlanError(
                "`pad` of `bucket_by_length` has a length of its own, but batches are padded to "
                "the boundary of their bucket. Leave `length` and `multiple_of` out."
            )
        if self.remainder == "pad" and not (pad.add_lengths or pad.add_mask):
            raise PlanError(
                '`remainder="pad"` adds empty rows, which nothing would distinguish from others. '
                "Pass `pad=PadBatch(add_mask=True)` or `pad=PadBatch(add_lengths=True)`."
            )
        if pad.leaves is None and self.length is not None and not callable(self.length):
            pad = replace(pad, leaves=self.length)
        checked = {
            "boundaries": boundaries,
            "batch_sizes": sizes,
            "drop_longer": as_bool("drop_longer", self.drop_longer),
            "pad": pad,
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements of a batch of each bucket."""
        return cast("tuple[int, ...]", self.batch_sizes)

    @property
    def label(self) -> str:
        """A short name for errors, statistics and checkpoints."""
        return f"BucketByLength({list(self.boundaries)}, batch_sizes={list(self.sizes)})"

    @property
    def description(self) -> str:
        """All that determines the stream."""
        longer = ", drop_longer=True" if self.drop_longer else ""
        return f"{self.label[:-1]}, remainder={self.remainder!r}{longer})"

    @cached_property
    def _padding(self) -> list[PadBatch]:
        return [replace(self.pad, length=boundary) for boundary in self.boundaries]

    @cached_property
    def _edges(self) -> Indices:
        return np.array(self.boundaries, dtype=np.int64)

    def lengths_of(self, elements: Sequence[Element]) -> list[int]:
        """Return the length of each element.

        Args:
            elements: Some elements.
        """
        length = self.length
        if callable(length):
            return [as_int("length(element)", length(element)) for element in elements]
        if length is None:
            return [_own_length(element) for element in elements]
        keys = (length,) if isinstance(length, str | int) else cast("Sequence[Hashable]", length)
        try:
            if len(keys) == 1:
                return list(map(len, map(itemgetter(keys[0]), elements)))
            return [max(len(element[key]) for key in keys) for element in elements]
        except (LookupError, TypeError):
            raise _without_length(elements, keys) from None

    def buckets_of(self, lengths: Sequence[int] | Indices) -> Indices:
        """Return the bucket of each length; the number of buckets for one that is too long.

        Args:
            lengths: The lengths of some elements.
        """
        return np.searchsorted(self._edges, np.asarray(lengths, dtype=np.int64), side="left")

    def make(
        self, elements: Sequence[Element], bucket: int, *, allocate: Allocate = np.empty
    ) -> Tree:
        """Return the batch of some elements of a bucket.

        Args:
            elements: At most as many elements as a batch of the bucket has.
            bucket: The number of the bucket.
            allocate: Creates the arrays of the batch, as `np.empty` does.
        """
        num_rows = self.sizes[bucket] if self.remainder == "pad" else len(elements)
        return self._padding[bucket].make(elements, num_rows=num_rows, allocate=allocate)

    def make_empty(self, example: Element, bucket: int) -> Tree:
        """Return a batch of a bucket without an element, of the structure of an example.

        Args:
            example: An element.
            bucket: The number of the bucket.
        """
        num_rows = self.sizes[bucket] + 1
        batch = self._padding[bucket].make([example], num_rows=num_rows)
        return map_leaves(lambda array: array[1:], batch)

    def too_long(self, length: int) -> BatchError:
        """Return the error for an element that is too long for all buckets.

        Args:
            length: The length of the element.
        """
        return BatchError(
            f"An element has length {length}, but the last boundary is {self.boundaries[-1]}. Add "
            "a larger boundary, cut it in a map before, or pass `drop_longer=True`."
        )


def _as_boundaries(boundaries: object) -> tuple[int, ...]:
    if isinstance(boundaries, np.ndarray):
        boundaries = boundaries.tolist()
    checked = [
        as_int("boundaries", value, minimum=1) for value in as_list("boundaries", boundaries)
    ]
    if not checked or any(low >= high for low, high in pairwise(checked)):
        raise PlanError(
            f"`boundaries` must be one or more increasing lengths, got {checked!r:.200}."
        )
    return tuple(checked)


def _as_sizes(sizes: object, max_tokens: object, boundaries: tuple[int, ...]) -> tuple[int, ...]:
    if (sizes is None) == (max_tokens is None):
        raise PlanError(
            "Pass either `batch_sizes`, the number of elements of a batch, or `max_tokens`, the "
            "number of values that a padded batch may have."
        )
    if max_tokens is not None:
        budget = as_int("max_tokens", max_tokens, minimum=1)
        if budget < boundaries[-1]:
            raise PlanError(
                f"`max_tokens` is {budget}, less than one element of length {boundaries[-1]}, the "
                "last boundary, has. Pass more tokens or smaller boundaries."
            )
        return tuple(budget // boundary for boundary in boundaries)
    if not isinstance(sizes, Sequence):
        return (as_int("batch_sizes", sizes, minimum=1),) * len(boundaries)
    several = [
        as_int("batch_sizes", size, minimum=1)
        for size in as_list("batch_sizes", cast("object", sizes))
    ]
    if len(several) != len(boundaries):
        raise PlanError(
            f"`batch_sizes` has {len(several)} numbers for {len(boundaries)} boundaries. Pass one "
            "for each boundary, or one number for all."
        )
    return tuple(several)


def _without_length(elements: Sequence[Element], keys: Sequence[Hashable]) -> PlanError:
    """Return the error for the first element that has nothing with a length at one of the keys."""
    for element in elements:
        for key in keys:
            try:
                len(element[key])
            except (LookupError, TypeError):
                return PlanError(
                    f"`length` is {key!r:.100}, but an element has no array there: "
                    f"{element!r:.100}. Pass the key of an array, or a function of an element."
                )
    raise AssertionError("all elements have a length")


def _own_length(element: Element) -> int:
    kind = type(element).__name__
    if isinstance(element, np.ndarray | list):
        array = cast("Sequence[Any]", element)
        if np.ndim(array[:1]):
            return len(array)
    raise PlanTypeError(
        f"The length of an element of type {kind} is not known. Pass "
        '`length="key"`, the key of the array whose length counts, or a function of an element.'
    )
