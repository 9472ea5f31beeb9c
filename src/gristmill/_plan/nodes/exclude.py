"""Nodes of a dataset without some of its records, in all of it or from an index on."""

from functools import cached_property
from typing import final

import numpy as np

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._base.indices import as_indices
from gristmill._plan.nodes.base import EpochChange, UnaryNode
from gristmill._plan.nodes.combine import ChooseNode
from gristmill.types import Indices


@final
@frozen_dataclass
class ExcludeNode(UnaryNode):
    """The elements of the parent, of which those at some indices are absent in every epoch."""

    records: tuple[int, ...]
    """The indices, in ascending order."""

    @property
    def label(self) -> str:
        return f"Exclude({len(self.records)} records)"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    @property
    def keeps_absent(self) -> bool:
        return True

    @property
    def description(self) -> None:
        """The state lists the records."""
        return

    @property
    def is_dense(self) -> bool:
        return False

    @cached_property
    def indices(self) -> Indices:
        """The indices as an array."""
        return as_indices(self.records)


@final
@frozen_dataclass
class SwitchNode(ChooseNode):
    """The elements of the first of two parents, and from an index on those of the second."""

    first: int
    """The index from which on elements are those of the second parent."""

    @property
    def label(self) -> str:
        return f"Switch(first={self.first})"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.MEMBERS

    @property
    def description(self) -> None:
        return

    @property
    def num_sources(self) -> int:
        return max(parent.num_sources for parent in self.inputs)

    def length(self) -> int:
        return self.inputs[0].length()

    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        return (indices >= self.first).astype(np.int64), indices
