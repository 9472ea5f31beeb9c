"""Count, mean, spread and range of many numbers, as values that can be merged."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gristmill.types import AnyArray

_CHUNK_VALUES = 2**18
"""Numbers are converted to 64 bits in chunks of this size, which fit into the caches of a core."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Moments of numbers in one or several channels; each field has one entry per channel.

    NaN and infinite values are counted, and left out of the mean and the spread. Two values are
    merged by the formula of Chan, Golub and LeVeque (1979), which loses no precision where the mean
    is large and the spread is small, as the sum of squares would.

    >>> moments_of(np.array([[1.0], [np.nan]])).merge(moments_of(np.array([[4.0]]))).mean
    array([2.5])
    """

    count: NDArray[np.int64]
    """Finite values."""
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    """Sum of the squared distances from the mean."""
    lows: NDArray[Any]
    """The smallest value, which may be infinite, as a Python number; `None` if there is none."""
    highs: NDArray[Any]
    """The largest one."""
    num_nan: NDArray[np.int64]
    num_infinite: NDArray[np.int64]

    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of the values of both, which have as many channels."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            distance = other.mean - self.mean
            mean = self.mean + distance * share
            squares = self.squares + other.squares + distance**2 * share * self.count
        return Moments(
            count=count,
            mean=np.where(self.count == 0, other.mean, mean),
            squares=np.where(
                self.count == 0, other.squares, np.where(other.count == 0, self.squares, squares)
            ),
            lows=_pick(min, self.lows, other.lows),
            highs=_pick(max, self.highs, other.highs),
            num_nan=self.num_nan + other.num_nan,
            num_infinite=self.num_infinite + other.num_infinite,
        )

    @property
    def std(self) -> NDArray[np.float64]:
        """The standard deviation of the population; NaN without values."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(self.squares / np.where(self.count == 0, np.nan, self.count))


def moments_of(values: AnyArray) -> Moments:
    """Return the moments of numbers or booleans.

    >>> moments = moments_of(np.array([[1, 10], [3, 30]]))
    >>> moments.mean, moments.std, moments.lows
    (array([ 2., 20.]), array([ 1., 10.]), array([1, 10], dtype=object))

    Args:
        values: An array of shape (number of values, number of channels).
    """
    num_rows = max(1, _CHUNK_VALUES // max(1, values.shape[1]))
    total = _of_chunk(values[:num_rows])
    for start in range(num_rows, len(values), num_rows):
        total = total.merge(_of_chunk(values[start : start + num_rows]))
    return total


def no_moments(num_channels: int) -> Moments:
    """Return the moments of no values."""
    return _of_chunk(np.empty((0, num_channels)))


def _of_chunk(values: AnyArray) -> Moments:
    num_channels: int = values.shape[1]
    none = np.zeros(num_channels, np.int64)
    if not len(values):
        return Moments(
            count=none,
            mean=np.zeros(num_channels),
            squares=np.zeros(num_channels),
            lows=_nones(num_channels),
            highs=_nones(num_channels),
            num_nan=none,
            num_infinite=none,
        )
    # With the channels first, NumPy runs over consecutive memory, and adds pairwise, which is more
    # exact. The second copy is needed even of floats: it is changed below.
    turned = np.ascontiguousarray(values.T)
    numbers = turned.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.add.reduce(numbers, axis=1) / len(values)
    if not np.isfinite(mean).all():
        return _of_chunk_with_gaps(values)
    numbers -= mean[:, None]
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", numbers, numbers)
    return Moments(
        count=none + len(values),
        mean=mean,
        squares=squares,
        lows=_as_objects(turned.min(axis=1)),
        highs=_as_objects(turned.max(axis=1)),
        num_nan=none,
        num_infinite=none,
    )


def _of_chunk_with_gaps(values: AnyArray) -> Moments:
    """Return the moments of numbers of which some are not finite, or whose sum is too large."""
    is_finite = np.isfinite(values)
    count = is_finite.sum(axis=0)
    is_nan = np.isnan(values)
    divisor = np.maximum(count, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        # Each is divided before they are added, because the sum may be too large for 64 bits.
        mean = (np.where(is_finite, values, 0).astype(np.float64) / divisor).sum(axis=0)
        distances = np.where(is_finite, values, mean).astype(np.float64) - mean
        squares = (distances**2).sum(axis=0)
    has_values = ~is_nan.all(axis=0)
    lows = np.where(is_nan, np.inf, values).min(axis=0)
    highs = np.where(is_nan, -np.inf, values).max(axis=0)
    return Moments(
        count=count,
        mean=mean,
        squares=squares,
        lows=np.where(has_values, _as_objects(lows), _nones(len(lows))),
        highs=np.where(has_values, _as_objects(highs), _nones(len(highs))),
        num_nan=is_nan.sum(axis=0),
        num_infinite=np.isinf(values).sum(axis=0),
    )


def _as_objects(values: AnyArray) -> NDArray[Any]:
    """Return Python numbers: integers of more than 53 bits would lose digits as floats."""
    numbers = values.astype(np.uint8) if values.dtype.kind == "b" else values
    made = np.empty(len(values), object)
    made[:] = numbers.tolist()
    return made


def _nones(count: int) -> NDArray[Any]:
    return np.empty(count, object)  # which is filled with None


def _pick(choose: Any, first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    made = np.empty(len(first), object)
    made[:] = [
        b if a is None else a if b is None else choose(a, b)
        for a, b in zip(first.tolist(), second.tolist(), strict=True)
    ]
    return made
