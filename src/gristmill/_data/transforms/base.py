"""Base classes of transformations, with one abstract method each."""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final, runtime_checkable

import numpy as np

from gristmill._base.checks import as_bool, as_int
from gristmill._base.grain_classes import is_from_grain
from gristmill.errors import PlanTypeError
from gristmill.types import Element, Tree


class _Transformation(metaclass=ABCMeta):  # noqa: B024 - each subclass has its own abstract method
    """A base class that also accepts Grain's class of the same name and its subclasses."""

    @classmethod
    def __subclasshook__(cls, other: type, /) -> bool:
        is_kind = _Transformation in cls.__bases__ and is_from_grain(other, cls.__name__)
        return True if is_kind else NotImplemented


class Map(_Transformation):
    """Maps one element to one element.

    A subclass can also define `map_batch(columns)`: the same for many elements at once, from a
    pytree of arrays with the elements along the first axis to another one. It must transform each
    element exactly as `map` does, for any number of elements.

    Or it can define `map_rows(elements)`, from a list of elements to a list of the same length: for
    elements that do not form columns, such as strings, and for functions that are faster on many
    elements at once, such as tokenizers. The same rule holds.

    >>> class Double(Map):
    ...     def map(self, element):
    ...         return 2 * element
    >>> Double().map(21)
    42
    """

    @abstractmethod
    def map(self, element: Element) -> Element:
        """Return the transformed element."""


@runtime_checkable
class SupportsMapBatch(Protocol):
    """A map that also handles many elements at once, as columns."""

    def map_batch(self, columns: Tree, /) -> Tree: ...


@runtime_checkable
class SupportsMapRows(Protocol):
    """A map that also handles many elements at once, as a list."""

    def map_rows(self, elements: list[Element], /) -> Sequence[Element]: ...


class RandomMap(_Transformation):
    """Maps one element and its own random generator to one element.

    The generator depends on the seed and the position of the record only.
    """

    @abstractmethod
    def random_map(self, element: Element, rng: np.random.Generator) -> Element:
        """Return the transformed element."""


class TfRandomMap(_Transformation):
    """A `RandomMap` whose method has the name used in TensorFlow pipelines."""

    @abstractmethod
    def np_random_map(self, element: Element, rng: np.random.Generator) -> Element:
        """Return the transformed element."""


class MapWithIndex(_Transformation):
    """Maps one element and its index in the stream to one element."""

    @abstractmethod
    def map_with_index(self, index: int, element: Element) -> Element:
        """Return the transformed element."""


class Filter(_Transformation):
    """Keeps an element, or removes it."""

    @abstractmethod
    def filter(self, element: Element) -> bool:
        """Return whether to keep the element."""


class FlatMap(_Transformation):
    """Maps one element to a sequence of at most `max_fan_out` elements, which may be empty."""

    max_fan_out: int

    @abstractmethod
    def flat_map(self, element: Element) -> Sequence[Element]:
        """Return the elements that replace this one."""


@final
@dataclass(frozen=True)
class Batch(_Transformation):
    """Stacks every `batch_size` elements along a new first axis.

    Args:
        batch_size: Number of elements in a batch.
        drop_remainder: Whether to drop the last batch if it is smaller.
        batch_fn: A function from a list of elements to a batch, instead of stacking.

    >>> Batch(batch_size=128, drop_remainder=True)
    Batch(batch_size=128, drop_remainder=True, batch_fn=None)
    """

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Element]], Element] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", as_int("batch_size", self.batch_size, minimum=1))
        object.__setattr__(self, "drop_remainder", as_bool("drop_remainder", self.drop_remainder))
        if self.batch_fn is not None and not callable(self.batch_fn):
            raise PlanTypeError(f"`batch_fn` must be callable, got {self.batch_fn!r}.")


Transformation: TypeAlias = Batch | Map | RandomMap | TfRandomMap | Filter | FlatMap | MapWithIndex
Transformations: TypeAlias = Sequence[Transformation]
