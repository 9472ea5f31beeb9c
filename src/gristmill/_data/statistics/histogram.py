"""How often numbers fall into intervals that are found while they are counted."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

MAX_BINS = 32


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """Counts of values in bins whose width is a power of two.

    The width depends on the smallest and the largest value only: it is the smallest one with which
    there are at most `MAX_BINS` bins. So a histogram does not depend on the order in which its
    values come, or on how they are split into shards.

    >>> histogram = histogram_of(np.array([0.0, 1.0, 1.5])).merge(histogram_of(np.array([64.0])))
    >>> histogram.counts, histogram.edges[:3]
    (array([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), array([0., 4., 8.]))
    """

    low: float
    """The smallest value."""
    high: float
    """The largest value."""
    exponent: int
    """The width is two to the power of this. Not used if all values are equal."""
    start: int
    """The lower edge of the first bin, in widths."""
    counts: NDArray[np.int64]

    def merge(self, other: "Histogram") -> "Histogram":
        """Return the histogram of the values of both."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        if low == high:
            counts = self.counts + other.counts
            return Histogram(low=low, high=high, exponent=0, start=0, counts=counts)
        exponent = _exponent(low, high)
        start = _bin(low, exponent)
        counts = np.zeros(_bin(high, exponent) - start + 1, np.int64)
        for one in (self, other):
            if one.low == one.high:
                bins = np.array([_bin(one.low, exponent)])
            else:  # a wider range never has narrower bins
                bins = (one.start + np.arange(len(one.counts))) >> (exponent - one.exponent)
            np.add.at(counts, bins - start, one.counts)
        return Histogram(low=low, high=high, exponent=exponent, start=start, counts=counts)

    @property
    def edges(self) -> NDArray[np.float64]:
        """The limits of the bins: one more than there are bins."""
        if self.low == self.high:
            return np.array([self.low, self.high])
        steps = self.start + np.arange(len(self.counts) + 1)
        with np.errstate(over="ignore"):  # the last edge may be infinite
            return np.ldexp(steps.astype(np.float64), self.exponent)


def histogram_of(
    values: NDArray[np.float64], weights: NDArray[np.int64] | None = None
) -> Histogram:
    """Return the histogram of finite numbers, at least one.

    >>> histogram_of(np.array([5.0, 5.0])).counts
    array([2])

    Args:
        values: The numbers.
        weights: How often each comes. By default once.
    """
    low, high = float(values.min()), float(values.max())
    times = np.ones(len(values), np.int64) if weights is None else weights
    if low == high:
        counts = np.array([times.sum()])
        return Histogram(low=low, high=high, exponent=0, start=0, counts=counts)
    exponent = _exponent(low, high)
    start = _bin(low, exponent)
    with np.errstate(under="ignore"):
        scaled = np.ldexp(values, -exponent)
    bins = np.floor(scaled).astype(np.int64)
    bins[(scaled == 0) & (values < 0)] = -1  # too small for a float
    counts = np.zeros(_bin(high, exponent) - start + 1, np.int64)
    np.add.at(counts, bins - start, times)
    return Histogram(low=low, high=high, exponent=exponent, start=start, counts=counts)


def _exponent(low: float, high: float) -> int:
    """Return the exponent of the smallest width with at most `MAX_BINS` bins."""
    # Halved first, because the range may be too large for a float.
    exponent = math.frexp(high / 2 - low / 2)[1] + 1 - MAX_BINS.bit_length()
    while _bin(high, exponent) - _bin(low, exponent) >= MAX_BINS:
        exponent += 1
    while _bin(high, exponent - 1) - _bin(low, exponent - 1) < MAX_BINS:
        exponent -= 1
    return exponent


def _bin(value: float, exponent: int) -> int:
    scaled = math.ldexp(value, -exponent)
    return -1 if scaled == 0 and value < 0 else math.floor(scaled)
