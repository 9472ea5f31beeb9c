"""Nodes of a dataset that do something to its elements, one at a time, by index.

`None` stands for an element that is absent: left out by a filter, or a piece that a flat map did
not make. No function of the user's is called for it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from gristmill._data.sampling.shard_lengths import ENDLESS
from gristmill._plan.nodes.base import Node, Step
from gristmill._plan.nodes.options import FilterLimits
from gristmill._plan.nodes.stream import HintNode
from gristmill.types import Element


@final
@dataclass(frozen=True, kw_only=True)
class SeededMapNode(Step):
    """`function` of each element and a generator made from `seed` and the element's index."""

    function: Callable[[Element, np.random.Generator], Element]
    seed: int

    @property
    def label(self) -> str:
        return f"RandomMap {self.name}"


@final
@dataclass(frozen=True, kw_only=True)
class FanOutNode(Step):
    """Room for `max_fan_out` pieces of each element; the places that are not filled are absent."""

    function: Callable[[Element], Iterable[Element]]
    max_fan_out: int

    @property
    def label(self) -> str:
        return f"FlatMap {self.name}"

    @property
    def is_dense(self) -> bool:
        return False

    def length(self) -> int:
        return min(self.parent.length() * self.max_fan_out, ENDLESS)


@final
@dataclass(frozen=True, kw_only=True)
class CustomNode(Node):
    """A dataset of the user's own: whatever its `__getitem__` gives."""

    dataset: Any
    name: str

    @property
    def label(self) -> str:
        return self.name

    @property
    def is_dense(self) -> bool:
        return False

    def length(self) -> int:
        return len(self.dataset)


@final
@dataclass(frozen=True, kw_only=True)
class SeedNode(HintNode):
    """The parent as it is; the random nodes above it derive their seeds from this one."""

    seed: int

    @property
    def label(self) -> str:
        return f"Seed({self.seed})"


@final
@dataclass(frozen=True, kw_only=True)
class AccessNode(Node):
    """The elements of a dataset one after the other: where random access becomes a stream.

    Absent ones are left out, unless `keeps_none`.
    """

    parent: Node
    keeps_none: bool = False
    limits: FilterLimits | None = None
    """How many may be absent."""

    @property
    def label(self) -> str:
        return f"ToIter({self.parent.label})"

    @property
    def is_dense(self) -> bool:
        return self.keeps_none or self.parent.is_dense

    def length(self) -> int:
        return self.parent.length()
