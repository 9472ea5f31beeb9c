"""Count the distinct values of a column, as long as they are few."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import final

MAX_CATEGORIES = 1000
"""Columns with more distinct values have no counts."""

_MAX_LENGTH = 100
"""Longer strings are not the names of classes."""


@final
@dataclass(frozen=True, kw_only=True)
class Categories:
    """How often each value of a column comes. Merging does not depend on the order.

    >>> count_categories(["cat", "dog"]).merge(count_categories(["cat"])).counts
    {'cat': 2, 'dog': 1}
    """

    counts: Mapping[Hashable, int] | None
    """By value; `None` if there are too many, or some are long strings."""

    def merge(self, other: "Categories") -> "Categories":
        """Return the counts of both."""
        if self.counts is None or other.counts is None:
            return Categories(counts=None)
        return _limited(Counter(self.counts) + Counter(other.counts))


def count_categories(values: Iterable[Hashable]) -> Categories:
    """Return how often each value comes."""
    return _limited(Counter(values))


def given_categories(counts: Mapping[Hashable, int]) -> Categories:
    """Return counts that are known already."""
    return _limited(Counter(counts))


def _limited(counts: Counter[Hashable]) -> Categories:
    is_long = any(isinstance(value, str) and len(value) > _MAX_LENGTH for value in counts)
    if is_long or len(counts) > MAX_CATEGORIES:
        return Categories(counts=None)
    return Categories(counts=dict(counts))
