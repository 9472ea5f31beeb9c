"""Random draws of records in proportion to weights, as a function of seed, epoch and position."""

import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.checks import as_bool, as_int, as_seed
from gristmill._base.indices import as_indices, keys_by_epoch
from gristmill._base.seed import uniforms
from gristmill._data.sampling.labels import as_classes
from gristmill.errors import PlanError
from gristmill.types import AnyArray, Indices

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True)
class WeightedDraws:
    """The record of each draw of each epoch.

    With replacement, a draw is independent of all others, and takes a binary search. Without, the
    draws of an epoch are found together: that takes a sort of all records, and the result is kept
    for the last few epochs (8 bytes for each draw).

    >>> draws = WeightedDraws.of(np.array([1.0, 0.0, 3.0]), num_samples=8, seed=0)
    >>> draws.keys(np.zeros(8, int), np.arange(8)).tolist()
    [2, 0, 2, 0, 2, 2, 2, 2]
    """

    table: "_WeightTable"
    num_samples: int
    replacement: bool
    seed: int

    @staticmethod
    def of(
        weights: AnyArray,
        *,
        num_samples: int | None = None,
        replacement: bool = True,
        seed: object,
    ) -> "WeightedDraws":
        """Check the arguments of a user, and make the draws.

        Args:
            weights: A weight for each record.
            num_samples: The number of draws of an epoch. By default as many as there are records,
                and without replacement as many as have a weight above 0.
            replacement: Whether a record may be drawn several times in an epoch.
            seed: The seed of the draws.
        """
        table = _WeightTable(_as_weights(weights))
        replacement = as_bool("replacement", replacement)
        if num_samples is None:
            num_samples = len(table.weights) if replacement else table.num_positive
        count = as_int("num_samples", num_samples, minimum=1)
        if not replacement and count > table.num_positive:
            raise PlanError(
                f"`num_samples` must be at most {table.num_positive} without replacement, which is "
                f"the number of records with a weight above 0, got {count}."
            )
        return WeightedDraws(
            table=table, num_samples=count, replacement=replacement, seed=as_seed(seed)
        )

    def __str__(self) -> str:
        kind = "with" if self.replacement else "without"
        return (
            f"{self.num_samples} of {len(self.table.weights)} {kind} replacement, "
            f"weights {self.table.digest:08x}, seed={self.seed}"
        )

    def keys(self, epochs: Indices, offsets: Indices) -> Indices:
        """Return the record of each draw, given by its epoch and its number in the epoch."""
        return keys_by_epoch(epochs, offsets, self.epoch_keys)

    def epoch_keys(self, epoch: int, offsets: Indices) -> Indices:
        """Return the record of each of some draws of one epoch."""
        if self.replacement:
            return self.table.find(uniforms(self.seed, epoch, offsets))
        return _drawn_in(self.table, self.num_samples, self.seed, epoch)[offsets]


def balanced_weights(labels: AnyArray) -> Floats:
    """Return weights with which each class is drawn as often as any other.

    >>> balanced_weights(np.array(["cat", "cat", "cat", "dog"])).round(2).tolist()
    [0.33, 0.33, 0.33, 1.0]
    """
    numbers, counts = as_classes(labels)
    return 1.0 / counts[numbers]


@final
@dataclass(frozen=True, eq=False)
class _WeightTable:
    """Weights, with what is needed to draw from them. Equal weights make equal tables."""

    weights: Floats
    digest: int = field(init=False)
    num_positive: int = field(init=False)
    _cumulative: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        computed: dict[str, Any] = {
            "digest": zlib.crc32(self.weights.tobytes()),
            "num_positive": int(np.count_nonzero(self.weights)),
            "_cumulative": np.cumsum(self.weights),
        }
        for name, value in computed.items():
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WeightTable) and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash((len(self.weights), self.digest))

    def find(self, uniform: Floats) -> Indices:
        """Return the record of each uniform random number."""
        total = float(self._cumulative[-1])
        # A product may be rounded up to the total, which belongs to no record.
        below: Floats = np.minimum(uniform * total, np.nextafter(total, 0))
        return as_indices(np.searchsorted(self._cumulative, below, side="right"))


@lru_cache(maxsize=4)
def _drawn_in(table: _WeightTable, num_samples: int, seed: int, epoch: int) -> Indices:
    """Return all draws of an epoch without replacement.

    A record of weight w waits for an exponential time of rate w; the first ones are drawn, in the
    order of their times. (Efraimidis and Spirakis, 2006.)
    """
    weights = table.weights
    uniform = uniforms(seed, epoch, np.arange(len(weights)))
    with np.errstate(divide="ignore"):
        times = -np.log1p(-uniform) / weights
    times[weights == 0] = np.inf  # also where 0 / 0 is not a number
    if num_samples < len(times):
        drawn = np.argpartition(times, num_samples - 1)[:num_samples]
    else:
        drawn = np.arange(len(times))
    # By time, and by number where times are equal, which `argpartition` returns in any order.
    drawn = drawn[np.lexsort((drawn, times[drawn]))].astype(np.int64)
    drawn.flags.writeable = False
    return drawn


def _as_weights(weights: AnyArray) -> Floats:
    if weights.dtype.kind not in "biuf":
        raise PlanError(f"`weights` must be numbers, got values of type {weights.dtype}.")
    numbers = weights.astype(np.float64)
    if not len(numbers):
        raise PlanError("`weights` must have a number for at least one record, got none.")
    is_wrong = ~(np.isfinite(numbers) & (numbers >= 0))
    if is_wrong.any():
        number = int(is_wrong.argmax())
        raise PlanError(
            f"`weights` must be finite and at least 0, got {numbers[number]} for record {number}."
        )
    if not numbers.any():
        raise PlanError("`weights` must be above 0 for at least one record, got only zeros.")
    # A power of two changes no ratio, and keeps sums away from the limits of floating point.
    scale = -int(np.frexp(numbers.max())[1])
    return np.ldexp(numbers, scale)
