"""The arithmetic of mixing: which dataset each mixed element comes from, as in Grain."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from gristmill._base.indices import as_indices, exact_up_to
from gristmill.errors import PlanError
from gristmill.types import Indices

T = TypeVar("T")

PERIOD = 1024
"""Minimum number of elements that are located before the result is repeated for those after them.
NumPy is slow on arrays with short rows."""


def as_proportions(weights: Sequence[float] | None, count: int) -> tuple[int, ...]:
    """Convert weights to integers as Grain does: the smallest becomes 100.

    >>> as_proportions([0.5, 0.25, 0.25], 3), as_proportions(None, 2)
    ((200, 100, 100), (1, 1))
    """
    if weights is None:
        return (1,) * count
    if len(weights) != count:
        raise PlanError(
            f"`weights` must have one number for each dataset, got {len(weights)} for {count} "
            "datasets."
        )
    if not all(weight > 0 for weight in weights):
        raise PlanError(
            f"Must specify all non-zero proportions for mixing: `weights` must be greater than 0, "
            f"got {list(weights)}. Leave out the datasets that should not be mixed in."
        )
    scale = 100 / min(weights)
    return tuple(int(weight * scale) for weight in weights)


def mixed_order(
    datasets: Sequence[T] | Mapping[Any, T],
    weights: Sequence[float] | Mapping[Any, float] | None,
) -> tuple[list[T], tuple[str, ...] | None, tuple[int, ...]]:
    """Return the datasets in the order in which Grain mixes them, their names and proportions.

    A mapping is mixed in the order of its sorted keys.

    >>> mixed_order({"b": "B", "a": "A"}, {"a": 1.0, "b": 2.0})
    (['A', 'B'], ('a', 'b'), (100, 200))
    """
    if not isinstance(datasets, Mapping):
        if isinstance(weights, Mapping):
            raise PlanError(
                "`weights` have names, the datasets do not. Pass both as mappings or as lists."
            )
        several = list(datasets)
        return several, None, _proportions(weights, len(several))
    named = dict(sorted(datasets.items(), key=itemgetter(0)))
    if isinstance(weights, Mapping):
        by_key = weights
        if by_key.keys() != named.keys():
            raise PlanError(
                f"`weights` must have the keys of the datasets, {list(named)}, got {list(by_key)}."
            )
        weights = [by_key[key] for key in named]
    names = tuple(str(key) for key in named)
    return list(named.values()), names, _proportions(weights, len(named))


def _proportions(weights: Sequence[float] | None, count: int) -> tuple[int, ...]:
    if not count:
        raise PlanError("There is nothing to mix. Pass at least one dataset.")
    return as_proportions(weights, count)


def choose(indices: Indices, proportions: tuple[int, ...]) -> tuple[Indices, Indices]:
    """Return the number of the dataset of each mixed element, and the element's index there.

    Of the first n mixed elements, the datasets after the first get their share rounded down. If
    that share is larger for n + 1 elements than for n, element n comes from one of them, which is
    found in the same way; otherwise it comes from the first.

    >>> numbers, within = choose(np.arange(6), (2, 1))
    >>> numbers.tolist(), within.tolist()
    ([0, 0, 1, 0, 0, 1], [0, 1, 0, 2, 3, 1])
    """
    total = sum(proportions)
    before = exact_up_to(indices, 2**62 // max(total, 1))
    after = before + 1
    numbers = np.zeros(len(indices), dtype=np.int64)
    within = np.zeros(len(indices), dtype=before.dtype)
    open_rows = np.arange(len(indices))
    for number, share in enumerate(proportions):
        others_before = before * (total - share) // total
        others_after = after * (total - share) // total
        count = after - others_after
        is_here = (before - others_before) != count
        rows = open_rows[is_here]
        numbers[rows] = number
        within[rows] = count[is_here] - 1
        is_later = ~is_here
        open_rows = open_rows[is_later]
        before, after = others_before[is_later], others_after[is_later]
        total -= share
    return numbers, as_indices(within)


def choose_run(indices: range, proportions: tuple[int, ...]) -> tuple[Indices, Indices]:
    """Return the same as `choose` for consecutive indices, several times as fast.

    >>> numbers, within = choose_run(range(3, 6), (2, 1))
    >>> numbers.tolist(), within.tolist()
    ([0, 0, 1], [2, 3, 1])
    """
    total = sum(proportions)
    if not -(2**62) < indices.start * total <= indices.stop * total < 2**62:
        return choose(as_indices(indices), proportions)
    num_repeats = max(1, PERIOD // total)
    if num_repeats * total > len(indices):
        return _choose_by_level(indices, proportions)
    return _repeat_period(indices, proportions, num_repeats)


def _repeat_period(
    indices: range, proportions: tuple[int, ...], num_repeats: int
) -> tuple[Indices, Indices]:
    """Locate a period of elements: those after it are of the same datasets, in the same order."""
    period = sum(proportions) * num_repeats
    first, offset = divmod(indices.start, period)
    num_periods = -(-(offset + len(indices)) // period)
    numbers, within = _choose_by_level(range(period), proportions)
    steps = np.array(proportions, dtype=np.int64)[numbers] * num_repeats
    all_within = np.arange(first, first + num_periods)[:, None] * steps + within
    chosen = slice(offset, offset + len(indices))
    return np.tile(numbers, num_periods)[chosen], all_within.reshape(-1)[chosen]


def _choose_by_level(indices: range, proportions: tuple[int, ...]) -> tuple[Indices, Indices]:
    """Locate elements.

    Dataset 0 shares the mixed elements with all others together, dataset 1 shares what is left with
    those after it, and so on. Where a dataset has a share of p out of t, its r-th element is at
    index `r * t // p` of that level, and the j-th element of the others at
    `((j + 1) * t - 1) // (t - p)`. So each element is located at its own level and then, from the
    last level up, moved to the level above.
    """
    start, stop, total = indices.start, indices.stop, sum(proportions)
    levels: list[tuple[int, int, range]] = []
    for share in proportions:
        others = total - share
        others_start, others_stop = start * others // total, stop * others // total
        levels.append((share, total, range(start - others_start, stop - others_stop)))
        start, stop, total = others_start, others_stop, others
    counts = [len(ranks) for _, _, ranks in levels]
    located = np.empty(sum(counts), dtype=np.int64)
    begin = len(located)
    for share, total, ranks in reversed(levels):
        below = located[begin:]
        if len(below):
            below *= total
            below += total - 1
            below //= total - share
        begin -= len(ranks)
        located[begin : begin + len(ranks)] = np.arange(ranks.start, ranks.stop) * total // share
    located -= indices.start
    numbers, within = np.empty_like(located), np.empty_like(located)
    numbers[located] = np.repeat(np.arange(len(counts)), counts)
    within[located] = np.concatenate([np.arange(r.start, r.stop) for _, _, r in levels])
    return numbers, within
