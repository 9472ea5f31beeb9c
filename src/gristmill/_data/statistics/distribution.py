"""Moments and histogram of the numbers of one column."""

from dataclasses import dataclass
from typing import final

import numpy as np

from gristmill._data.statistics.histogram import Histogram, histogram_of
from gristmill._data.statistics.moments import Moments, moments_of
from gristmill.types import AnyArray


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Distribution:
    """How the numbers of a column are distributed.

    >>> distribution = distribute(np.array([1, 2, 6])).merge(distribute(np.array([np.nan])))
    >>> distribution.mean, distribution.num_nan
    (3.0, 1)
    """

    moments: Moments
    histogram: Histogram | None
    """Of the finite numbers; `None` if there are none."""

    def merge(self, other: "Distribution") -> "Distribution":
        """Return the distribution of the numbers of both."""
        first, second = self.histogram, other.histogram
        merged = first.merge(second) if first is not None and second is not None else None
        return Distribution(
            moments=self.moments.merge(other.moments), histogram=merged or first or second
        )

    @property
    def count(self) -> int:
        """Finite numbers."""
        return int(self.moments.count[0])

    @property
    def mean(self) -> float:
        """The mean of the finite numbers."""
        return float(self.moments.mean[0])

    @property
    def std(self) -> float:
        """The standard deviation of the finite numbers."""
        return float(self.moments.std[0])

    @property
    def low(self) -> int | float | None:
        """The smallest number."""
        return self.moments.lows[0]

    @property
    def high(self) -> int | float | None:
        """The largest number."""
        return self.moments.highs[0]

    @property
    def num_nan(self) -> int:
        """Numbers that are NaN."""
        return int(self.moments.num_nan[0])

    @property
    def num_infinite(self) -> int:
        """Infinite numbers."""
        return int(self.moments.num_infinite[0])


def distribute(values: AnyArray) -> Distribution:
    """Return the distribution of numbers in an array of any shape."""
    flat = values.reshape(-1)
    return Distribution(moments=moments_of(flat[:, None]), histogram=_histogram(flat))


def _histogram(flat: AnyArray) -> Histogram | None:
    if flat.dtype == np.uint8:  # pixels, of which there are many
        counts = np.bincount(flat, minlength=256)
        present = np.flatnonzero(counts)
        return histogram_of(present.astype(np.float64), counts[present]) if len(present) else None
    numbers = flat.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    return histogram_of(finite) if len(finite) else None
