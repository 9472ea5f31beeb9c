"""Nodes that make one dataset of several."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self, final

import numpy as np

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._base.indices import as_indices, join_epochs, scale, split_epochs
from gristmill._data.sampling.remaining import Remaining
from gristmill._plan.element_spec import ParentSpecs
from gristmill._plan.mixing import choose, choose_run
from gristmill._plan.nodes.base import ENDLESS, EpochChange, Node, stable_repr
from gristmill._plan.scheduled_mixing import ScheduledMix
from gristmill.errors import PlanError
from gristmill.options import ShardOptions
from gristmill.types import Indices, RandomAccessDataSource, Tree


@frozen_dataclass
class CombineNode(Node):
    """Elements of several datasets."""

    inputs: tuple[Node, ...]
    """The parents."""

    @property
    def parents(self) -> tuple[Node, ...]:
        return self.inputs

    def with_parents(self, parents: Sequence[Node]) -> Self:
        return replace(self, inputs=tuple(parents))

    @property
    def is_dense(self) -> bool:
        return all(parent.is_dense for parent in self.inputs)


@frozen_dataclass
class ChooseNode(CombineNode):
    """Each element is an element of one of the parents."""

    @cached_property
    def _num_sources(self) -> int:
        return sum(parent.num_sources for parent in self.inputs)

    @property
    def num_sources(self) -> int:
        return self._num_sources

    @property
    def keeps_absent(self) -> bool:
        return True

    @abstractmethod
    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the number of the parent of each element, and the element's index there."""


@final
@frozen_dataclass
class MixNode(ChooseNode):
    """Elements of the parents in proportions, until one of the parents is exhausted."""

    proportions: tuple[int, ...]
    schedule: ScheduledMix | None = None
    """The proportions at each index, if they change."""

    def __post_init__(self) -> None:
        empty = [number for number, parent in enumerate(self.inputs) if not parent.length()]
        if empty:
            raise PlanError(
                "All datasets must have positive length for mixing, but dataset(s) at "
                + ", ".join(f"index {one} ({self.inputs[one].label})" for one in empty)
                + " have length 0. Leave them out."
            )

    @property
    def label(self) -> str:
        weights = list(self.proportions) if self.schedule is None else self.schedule.label
        return f"Mix(weights={weights})"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.MEMBERS

    @cached_property
    def _length(self) -> int:
        if self.schedule is not None:
            return self.schedule.length([parent.length() for parent in self.inputs])
        total = sum(self.proportions)
        # In floating point, as in Grain, where rounding may add or remove one element.
        lengths = [
            parent.length() / (share / total)
            for parent, share in zip(self.inputs, self.proportions, strict=True)
        ]
        return min(ENDLESS, int(min(lengths)))

    def length(self) -> int:
        return self._length

    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        if self.schedule is not None:
            return self.schedule.choose(indices)
        return choose(indices, self.proportions)

    def locate_run(self, indices: range) -> tuple[Indices, Indices]:
        """Return the same as `locate`, for consecutive indices."""
        if self.schedule is not None:
            return self.schedule.choose_run(indices)
        return choose_run(indices, self.proportions)


@final
@frozen_dataclass
class SelectNode(ChooseNode):
    """Each element from where the user's `selection` points to."""

    selection: RandomAccessDataSource[tuple[int, int]]

    @property
    def label(self) -> str:
        return f"Select({stable_repr(self.selection)})"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.MEMBERS

    def length(self) -> int:
        return len(self.selection)

    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        found = [self.selection[index] for index in indices.tolist()]
        located = as_indices(found).reshape(len(found), 2)
        return as_indices(located[:, 0]), located[:, 1]


@final
@frozen_dataclass
class ConcatenateNode(ChooseNode):
    """One epoch of each parent after the other."""

    def __post_init__(self) -> None:
        for parent in self.inputs:
            if parent.length() >= ENDLESS:
                raise PlanError(
                    f"Cannot concatenate infinite datasets: {parent.label} has no end that another "
                    "one could follow. Concatenate first, and repeat the result."
                )
        if self.length() > ENDLESS:
            raise PlanError(
                f"The datasets have {self.length()} elements in total, which is more than "
                f"`sys.maxsize`, {ENDLESS}. Concatenate fewer of them."
            )

    @property
    def label(self) -> str:
        return f"Concatenate({len(self.inputs)} datasets)"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    @cached_property
    def _num_sources(self) -> int:
        return max(parent.num_sources for parent in self.inputs)

    @cached_property
    def _lengths(self) -> list[int]:
        return [parent.length() for parent in self.inputs]

    @cached_property
    def _ends(self) -> Indices:
        return np.cumsum(self._lengths, dtype=np.int64)

    def length(self) -> int:
        return sum(self._lengths)

    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        epochs, offsets = split_epochs(indices, self.length())
        numbers = np.searchsorted(self._ends, offsets, side="right").astype(np.int64)
        lengths = np.diff(self._ends, prepend=0)
        within = offsets - (self._ends - lengths)[numbers]
        return numbers, join_epochs(epochs, within, lengths[numbers], bound=self.length())


@final
@frozen_dataclass
class ReshardedNode(ChooseNode):
    """A shard of what remains of the parents, each of which was one shard of an earlier run.

    For datasets whose elements depend on their index in a shard, as after a shuffle of the shard.
    """

    remaining: Remaining
    shard: ShardOptions

    @property
    def label(self) -> str:
        return f"Remaining({self.shard.shard_index} of {self.shard.shard_count})"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE  # nothing reads a second epoch of what remains

    @property
    def may_be_shard(self) -> bool:
        return True

    def length(self) -> int:
        return self.remaining.num_positions(self.shard)

    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        shard = self.shard
        numbers = self.remaining.numbers(scale(indices, shard.shard_count, shard.shard_index))
        within, owners = split_epochs(numbers, len(self.inputs))
        return owners, within


@final
@frozen_dataclass
class ZipNode(CombineNode):
    """Tuples of the parents' elements at the same index."""

    def __post_init__(self) -> None:
        lengths = [parent.length() for parent in self.inputs]
        if not lengths:
            raise PlanError("There is nothing to zip. At least one parent must be provided.")
        if len(set(lengths)) > 1:
            raise PlanError(
                f"All parents must have the same length to be zipped, got lengths {lengths}. "
                "Slice them first, such as `ds[:n]`."
            )

    @property
    def label(self) -> str:
        return f"Zip({len(self.inputs)} datasets)"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    @property
    def is_dense(self) -> bool:
        return True  # a tuple that contains only None is an element

    def length(self) -> int:
        return self.inputs[0].length()

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        return tuple(spec() for spec in parents)
