"""Grain's older operations, which wrap a function."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from gristmill._data.transforms.base import Batch
from gristmill.types import Element


class Operation(Protocol):
    """Grain's protocol of operations: from an iterator of records to an iterator of records.

    `DataLoader` converts the operations in this module to the corresponding steps. It refuses a
    user's own operation, because a checkpoint cannot contain the elements that it holds.
    """

    def __call__(self, input_iterator: Iterator[Element], /) -> Iterator[Element]: ...


@final
@dataclass(frozen=True)
class MapOperation:
    """`Map` with a function."""

    map_function: Callable[[Element], Element]


@final
@dataclass(frozen=True)
class RandomMapOperation:
    """`RandomMap` with a function of the element and its generator."""

    random_map_function: Callable[[Element, np.random.Generator], Element]


@final
@dataclass(frozen=True)
class FilterOperation:
    """`Filter` with a function."""

    condition_function: Callable[[Element], bool]


@final
@dataclass(frozen=True)
class BatchOperation:
    """`Batch` under its older name."""

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Element]], Element] | None = None

    def __post_init__(self) -> None:
        self.as_batch()  # checks the arguments

    def as_batch(self) -> Batch:
        """Return the equivalent transformation."""
        return Batch(self.batch_size, self.drop_remainder, self.batch_fn)

    def disable_deprecation_message(self) -> None:
        """Do nothing: gristmill has no such message."""
