"""Nodes that make one dataset of several."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from gristmill._data.sampling.shard_lengths import ENDLESS
from gristmill._plan.nodes.base import Node, stable_repr
from gristmill.errors import PlanError
from gristmill.types import Indices


@dataclass(frozen=True, kw_only=True)
class CombineNode(Node):
    """Elements of several parents."""

    parents: tuple[Node, ...]

    @property
    def is_dense(self) -> bool:
        return all(parent.is_dense for parent in self.parents)


@dataclass(frozen=True, kw_only=True)
class ChooseNode(CombineNode):
    """Each element is one of a parent's."""

    @cached_property
    def _num_sources(self) -> int:
        return sum(parent.num_sources for parent in self.parents)

    @property
    def num_sources(self) -> int:
        return self._num_sources

    @abstractmethod
    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        """Give the number of the parent of each element, and its index there."""


@final
@dataclass(frozen=True, kw_only=True)
class MixNode(ChooseNode):
    """Elements of the parents in turn, by proportions, until one of them has given all it has."""

    proportions: tuple[int, ...]

    def __post_init__(self) -> None:
        empty = [number for number, parent in enumerate(self.parents) if not parent.length()]
        if empty:
            raise PlanError(
                f"Datasets of length 0 cannot be mixed: number {', '.join(map(str, empty))} "
                f"({', '.join(self.parents[number].label for number in empty)}). Leave them out."
            )

    @property
    def label(self) -> str:
        return f"Mix(weights={list(self.proportions)})"

    @cached_property
    def _length(self) -> int:
        total = sum(self.proportions)
        # In floating point, as Grain counts: at the rim one more or less.
        lengths = [
            parent.length() / (share / total)
            for parent, share in zip(self.parents, self.proportions, strict=True)
        ]
        return min(ENDLESS, int(min(lengths)))

    def length(self) -> int:
        return self._length

    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        return choose(indices, self.proportions)

    def locate_run(self, indices: range) -> tuple[Indices, Indices]:
        """Do what `locate` does, for indices that follow each other."""
        return choose_run(indices, self.proportions)


@final
@dataclass(frozen=True, kw_only=True)
class SelectNode(ChooseNode):
    """Elements where a map of the user's says."""

    selection: Any

    @property
    def label(self) -> str:
        return f"Select({stable_repr(self.selection)})"

    def length(self) -> int:
        return len(self.selection)

    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        found = [self.selection[index] for index in indices.tolist()]
        places = np.array(found, dtype=np.int64).reshape(len(found), 2)
        return places[:, 0], places[:, 1]


@final
@dataclass(frozen=True, kw_only=True)
class ConcatenateNode(ChooseNode):
    """One epoch of each parent after the other."""

    def __post_init__(self) -> None:
        for parent in self.parents:
            if parent.length() >= ENDLESS:
                raise PlanError(
                    f"{parent.label} has no end, so nothing can be concatenated to it. "
                    "Concatenate first, and repeat the whole."
                )

    @property
    def label(self) -> str:
        return f"Concatenate({len(self.parents)} datasets)"

    @cached_property
    def _num_sources(self) -> int:
        return max(parent.num_sources for parent in self.parents)

    @cached_property
    def _ends(self) -> Indices:
        return np.cumsum([parent.length() for parent in self.parents], dtype=np.int64)

    def length(self) -> int:
        return int(self._ends[-1]) if self.parents else 0

    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        epochs, places = np.divmod(indices, self.length())
        numbers = np.searchsorted(self._ends, places, side="right").astype(np.int64)
        lengths = np.diff(self._ends, prepend=0)
        within = places - (self._ends - lengths)[numbers]
        return numbers, within + epochs * lengths[numbers]


@final
@dataclass(frozen=True, kw_only=True)
class ZipNode(CombineNode):
    """Tuples of the parents' elements at the same index."""

    def __post_init__(self) -> None:
        lengths = [parent.length() for parent in self.parents]
        if not lengths:
            raise PlanError("There is nothing to zip. Pass at least one dataset.")
        if len(set(lengths)) > 1:
            raise PlanError(
                f"Only datasets of the same length can be zipped, these have {lengths}. "
                "Cut them with a slice, such as `ds[:n]`."
            )

    @property
    def label(self) -> str:
        return f"Zip({len(self.parents)} datasets)"

    @property
    def is_dense(self) -> bool:
        return True  # a tuple of nothing but None is still a tuple

    def length(self) -> int:
        return self.parents[0].length()


def as_proportions(weights: Sequence[float] | None, count: int) -> tuple[int, ...]:
    """Turn weights into the integers that Grain makes of them: the smallest becomes 100.

    >>> as_proportions([0.5, 0.25, 0.25], 3), as_proportions(None, 2)
    ((200, 100, 100), (1, 1))
    """
    if weights is None:
        return (1,) * count
    if len(weights) != count:
        raise PlanError(f"`weights` are {len(weights)}, the datasets {count}. Give one for each.")
    if not all(weight > 0 for weight in weights):
        raise PlanError(
            f"`weights` must be greater than 0, got {list(weights)}. Leave out what is not to come."
        )
    scale = 100 / min(weights)
    return tuple(int(weight * scale) for weight in weights)


def choose(indices: Indices, proportions: tuple[int, ...]) -> tuple[Indices, Indices]:
    """Give the number of the dataset of each mixed element, and its index there, as Grain does.

    Of n mixed elements, the datasets from some one on get a share rounded down; one whose share
    does not grow from n to n + 1 is not the one that gives element n.

    >>> numbers, within = choose(np.arange(6), (2, 1))
    >>> numbers.tolist(), within.tolist()
    ([0, 0, 1, 0, 0, 1], [0, 1, 0, 2, 3, 1])
    """
    numbers = np.zeros(len(indices), dtype=np.int64)
    within = np.zeros(len(indices), dtype=np.int64)
    open_rows = np.arange(len(indices))
    before, after = indices, indices + 1
    remaining = sum(proportions)
    if len(indices) and int(indices.max()) >= (2**62) // max(remaining, 1):
        before, after = before.astype(object), after.astype(object)
    for number, share in enumerate(proportions):
        rest_before = before * (remaining - share) // remaining
        rest_after = after * (remaining - share) // remaining
        count = after - rest_after
        is_here = (before - rest_before) != count
        rows = open_rows[is_here]
        numbers[rows] = number
        within[rows] = count[is_here] - 1
        goes_on = ~is_here
        open_rows, before, after = open_rows[goes_on], rest_before[goes_on], rest_after[goes_on]
        remaining -= share
    return numbers, within


def choose_run(indices: range, proportions: tuple[int, ...]) -> tuple[Indices, Indices]:
    """Do what `choose` does for indices that follow each other: a few times as fast.

    Number 0 shares the mixed elements with all others together, number 1 what is left with those
    after it, and so on: at each level a share of p in a total of t has the turns floor(r t / p),
    and the j-th turn of the others is ((j + 1) t - 1) div (t - p). So turns are placed at their
    own level, and from the last level up, all that are placed already are moved to the one above.

    >>> numbers, within = choose_run(range(3, 6), (2, 1))
    >>> numbers.tolist(), within.tolist()
    ([0, 0, 1], [2, 3, 1])
    """
    start, stop, total = indices.start, indices.stop, sum(proportions)
    if stop * total >= 2**62:
        return choose(np.arange(start, stop), proportions)
    levels: list[tuple[int, int, range]] = []
    for share in proportions:
        others = total - share
        rest_start, rest_stop = start * others // total, stop * others // total
        levels.append((share, total, range(start - rest_start, stop - rest_stop)))
        start, stop, total = rest_start, rest_stop, others
    counts = [len(ranks) for _, _, ranks in levels]
    places = np.empty(sum(counts), dtype=np.int64)
    begin = len(places)
    for share, total, ranks in reversed(levels):
        placed = places[begin:]
        if len(placed):
            placed *= total
            placed += total - 1
            placed //= total - share
        begin -= len(ranks)
        places[begin : begin + len(ranks)] = np.arange(ranks.start, ranks.stop) * total // share
    places -= indices.start
    numbers, within = np.empty_like(places), np.empty_like(places)
    numbers[places] = np.repeat(np.arange(len(counts)), counts)
    within[places] = np.concatenate([np.arange(r.start, r.stop) for _, _, r in levels])
    return numbers, within
