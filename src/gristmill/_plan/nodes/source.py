"""The records where they are."""

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from gristmill._data.sources.memory.array import ArraySource
from gristmill._plan.nodes.base import Node, stable_repr
from gristmill.errors import PlanTypeError
from gristmill.types import RandomAccessDataSource, SupportsGetItems


@final
@dataclass(frozen=True, kw_only=True)
class SourceNode(Node):
    """The records of a source, in the source's order."""

    source: RandomAccessDataSource[Any]

    def __post_init__(self) -> None:
        source: Any = self.source
        if isinstance(source, type):
            raise PlanTypeError(
                f"`data_source` is the class {source.__name__}. Pass an instance of it."
            )
        if isinstance(source, str | bytes):
            raise PlanTypeError(
                f"`data_source` is the text {source!r}. Pass a source that reads it."
            )
        if isinstance(source, dict):
            raise PlanTypeError(
                "`data_source` is a dict. Wrap a dict of arrays as `ArraySource(arrays)`."
            )
        if not isinstance(source, RandomAccessDataSource):
            raise PlanTypeError(
                f"`data_source` must have `__len__` and `__getitem__`, got {stable_repr(source)}. "
                "Make a list of it, or write a class with both."
            )
        if isinstance(source, np.ndarray):
            object.__setattr__(self, "source", ArraySource(source))

    @property
    def label(self) -> str:
        source = self.source
        kind = type(source).__qualname__.rpartition("<locals>.")[2]
        told = kind if isinstance(source, list | tuple) else stable_repr(source)
        return f"{kind}(<{self.length()} records>)" if told == kind else told

    @property
    def reads_many(self) -> bool:
        return isinstance(self.source, SupportsGetItems)

    def length(self) -> int:
        source: Sized = self.source
        return len(source)
