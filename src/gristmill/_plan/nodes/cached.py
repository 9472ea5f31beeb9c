"""The node of a dataset whose elements are kept once they are computed."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self, final

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._plan.nodes.base import ENDLESS, EpochChange, Node, UnaryNode, steps_that_vary
from gristmill.errors import PlanError
from gristmill.types import Indices

if TYPE_CHECKING:
    from gristmill._data.element_store.memory import MemoryFiles


@final
@frozen_dataclass
class StoredNode(UnaryNode):
    """The elements of the parent, each of which is computed once and then read from a store.

    Each epoch of the parent is equal to the first, so the elements are those of the parent.
    """

    folder: str | None
    """The folder of the store, or `None` for a store in memory."""
    max_bytes: int
    fingerprint: str = ""
    """The fingerprint of the parent. Computed where the plan is built, never in a worker."""
    memory: "MemoryFiles | None" = None

    def __post_init__(self) -> None:
        if self.parent.length() >= ENDLESS:
            raise PlanError("An infinite dataset cannot be cached. Call `cache` before `repeat`.")
        if self.fingerprint:
            return
        _check_epochs_are_equal(self.parent)
        # Imported here, because few plans have a cache, and hashing needs several modules.
        compute: Callable[[Node], str] = importlib.import_module(
            "gristmill._plan.fingerprint"
        ).fingerprint
        object.__setattr__(self, "fingerprint", compute(self.parent))
        if self.folder is None:
            memory = importlib.import_module("gristmill._data.element_store.memory")
            object.__setattr__(self, "memory", memory.MemoryFiles())

    @property
    def label(self) -> str:
        return "Cache(in memory)" if self.folder is None else "Cache"

    @property
    def description(self) -> None:
        return None

    @property
    def is_elementwise(self) -> bool:
        return True

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE_BELOW

    def to_parent(self, indices: Indices) -> Indices:
        return indices

    def num_read(self, index: int) -> int:
        return index

    def with_parents(self, parents: Sequence[Node]) -> Self:
        (parent,) = parents
        if parent is self.parent:
            return self
        return replace(self, parent=parent, fingerprint="", memory=None)


def _check_epochs_are_equal(plan: Node) -> None:
    """Raise if a step below a cache yields other elements in each epoch."""
    node = next(steps_that_vary(plan), None)
    if node is not None:
        raise PlanError(
            f"`cache` would make every epoch equal to the first: {node.label} ({node.site}) may "
            f"yield other elements in each epoch. {REMEDIES[node.epoch_change]}"
        )


REMEDIES: Mapping[EpochChange, str] = {
    EpochChange.ORDER: "Call `cache` first, and the random step after it.",
    EpochChange.RANDOM: "Call `cache` first, and the random step after it.",
    EpochChange.INDEX: "Call `cache` first, and `map_with_index` after it.",
    EpochChange.MEMBERS: "Call `cache` on each dataset, and combine them after it.",
    EpochChange.UNKNOWN: "If its epochs are equal, use `MapDataset.source(dataset)`.",
}
"""What to do instead of caching a dataset whose epochs differ."""
