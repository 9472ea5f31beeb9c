"""What users derive their steps from: one verb each."""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, final, runtime_checkable

import numpy as np

from gristmill._check import as_bool, as_int, is_grains
from gristmill.errors import PlanTypeError
from gristmill.types import Element, Tree


class _Step(metaclass=ABCMeta):  # noqa: B024  (what is abstract is each kind's own)
    """What Grain's class of the same name counts as, too, with all that derives from it."""

    @classmethod
    def __subclasshook__(cls, other: type, /) -> bool:
        is_kind = _Step in cls.__bases__ and is_grains(other, cls.__name__)
        return True if is_kind else NotImplemented


class Map(_Step):
    """One element in, one element out.

    A subclass may also offer `map_batch(columns)`: the same for many elements at once, given and
    giving a pytree of arrays with the elements along the first axis. It must do to each element
    just what `map` does, for any number of them.

    >>> class Double(Map):
    ...     def map(self, element):
    ...         return 2 * element
    >>> Double().map(21)
    42
    """

    @abstractmethod
    def map(self, element: Element) -> Element:
        """Give the element that takes this one's place."""


@runtime_checkable
class SupportsMapBatch(Protocol):
    """A map that also takes many elements at once, as columns."""

    def map_batch(self, columns: Tree, /) -> Tree: ...


class RandomMap(_Step):
    """One element and its own random generator in, one element out."""

    @abstractmethod
    def random_map(self, element: Element, rng: np.random.Generator) -> Element:
        """Give the element that takes this one's place."""


class TfRandomMap(_Step):
    """`RandomMap` under the name of its method in TensorFlow pipelines."""

    @abstractmethod
    def np_random_map(self, element: Element, rng: np.random.Generator) -> Element:
        """Give the element that takes this one's place."""


class MapWithIndex(_Step):
    """One element and its index in the stream in, one element out."""

    @abstractmethod
    def map_with_index(self, index: int, element: Element) -> Element:
        """Give the element that takes this one's place."""


class Filter(_Step):
    """Keep an element, or leave it out."""

    @abstractmethod
    def filter(self, element: Element) -> bool:
        """Say whether to keep the element."""


class FlatMap(_Step):
    """One element in, at most `max_fan_out` elements out, perhaps none."""

    max_fan_out: int

    @abstractmethod
    def flat_map(self, element: Element) -> Sequence[Element]:
        """Give the elements that take this one's place."""


@final
@dataclass(frozen=True)
class Batch(_Step):
    """Stack every `batch_size` elements along a new first axis, or give them to `batch_fn`.

    The last batch is smaller where the elements run out, unless `drop_remainder`.

    >>> Batch(batch_size=128, drop_remainder=True)
    Batch(batch_size=128, drop_remainder=True, batch_fn=None)
    """

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Any]], Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", as_int("batch_size", self.batch_size, minimum=1))
        object.__setattr__(self, "drop_remainder", as_bool("drop_remainder", self.drop_remainder))
        if self.batch_fn is not None and not callable(self.batch_fn):
            raise PlanTypeError(f"`batch_fn` must be callable, got {self.batch_fn!r}.")


Transformation: TypeAlias = Batch | Map | RandomMap | TfRandomMap | Filter | FlatMap | MapWithIndex
Transformations: TypeAlias = Sequence[Transformation]
