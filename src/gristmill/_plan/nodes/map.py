"""Steps that give one element for each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from gristmill._plan.nodes.base import Step
from gristmill.types import Element, Tree


@final
@dataclass(frozen=True, kw_only=True)
class MapNode(Step):
    """`function` of each element; `batch_function` does the same to many, as columns."""

    function: Callable[[Element], Element]
    batch_function: Callable[[Tree], Tree] | None = None
    skips_none: bool = False
    """Whether an element that is `None` stays so."""

    @property
    def label(self) -> str:
        return f"Map {self.name}"


@final
@dataclass(frozen=True, kw_only=True)
class MapWithIndexNode(Step):
    """`function` of the index in the stream and the element."""

    function: Callable[[int, Element], Element]

    @property
    def label(self) -> str:
        return f"MapWithIndex {self.name}"


@final
@dataclass(frozen=True, kw_only=True)
class RandomMapNode(Step):
    """`function` of each element and the generator of the record it came from.

    All random steps of a record draw from one generator, one after the other.
    """

    function: Callable[[Element, np.random.Generator], Element]

    @property
    def label(self) -> str:
        return f"RandomMap {self.name}"
