"""Base classes of transformations, with one abstract method each."""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final, runtime_checkable

import numpy as np

from gristmill._base.checks import as_batch_size, as_bool
from gristmill._base.grain.classes import is_from_grain
from gristmill._base.short_repr import show_value
from gristmill._data.batching.buckets import BucketByLength
from gristmill._data.transforms.stream_operations import Scan, Unbatch, Window
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
    def map(self, element: Element, /) -> Element:
        """Return the transformed element.

        Args:
            element: An element of the step below, or a record of the source.
        """


@runtime_checkable
class SupportsMapBatch(Protocol):
    """A map that also handles many elements at once, as columns.

    >>> import numpy as np
    >>> class Double(Map):
    ...     def map(self, element):
    ...         return 2 * element
    ...
    ...     def map_batch(self, columns):
    ...         return 2 * columns
    >>> isinstance(Double(), SupportsMapBatch)
    True
    >>> Double().map_batch(np.arange(3))
    array([0, 2, 4])
    """

    def map_batch(self, columns: Tree, /) -> Tree:
        """Return the transformed elements.

        Args:
            columns: The elements as one pytree of arrays, whose first axis are the elements.
        """
        ...


@runtime_checkable
class SupportsMapRows(Protocol):
    """A map that also handles many elements at once, as a list."""

    def map_rows(self, elements: list[Element], /) -> Sequence[Element]: ...


class RandomMap(_Transformation):
    """Maps one element and its own random generator to one element.

    The generator depends on the seed and the position of the record only.

    >>> from gristmill import load
    >>> class Flip(RandomMap):
    ...     def random_map(self, element, rng):
    ...         return -element if rng.random() < 0.5 else element
    >>> list(load(range(1, 6), num_epochs=1, seed=0, transformations=[Flip()]))
    [-1, -2, -3, 4, -5]
    """

    @abstractmethod
    def random_map(self, element: Element, rng: np.random.Generator, /) -> Element:
        """Return the transformed element.

        Args:
            element: An element of the step below, or a record of the source.
            rng: A generator that depends on the seed and the position of the element only.
        """


class TfRandomMap(_Transformation):
    """A `RandomMap` whose method has the name used in TensorFlow pipelines.

    >>> from gristmill import load
    >>> class Flip(TfRandomMap):
    ...     def np_random_map(self, element, rng):
    ...         return -element if rng.random() < 0.5 else element
    >>> list(load(range(1, 6), num_epochs=1, seed=0, transformations=[Flip()]))
    [-1, -2, -3, 4, -5]
    """

    @abstractmethod
    def np_random_map(self, element: Element, rng: np.random.Generator, /) -> Element:
        """Return the transformed element.

        Args:
            element: An element of the step below, or a record of the source.
            rng: A generator that depends on the seed and the position of the element only.
        """


class MapWithIndex(_Transformation):
    """Maps one element and its index in the stream to one element.

    >>> from gristmill import load
    >>> class Number(MapWithIndex):
    ...     def map_with_index(self, index, element):
    ...         return index, element
    >>> list(load(list("abc"), num_epochs=1, transformations=[Number()]))
    [(0, 'a'), (1, 'b'), (2, 'c')]
    """

    @abstractmethod
    def map_with_index(self, index: int, element: Element, /) -> Element:
        """Return the transformed element.

        Args:
            index: The number of the element in the stream, starting at 0.
            element: An element of the step below, or a record of the source.
        """


class Filter(_Transformation):
    """Keeps an element, or removes it.

    >>> from gristmill import load
    >>> class Even(Filter):
    ...     def filter(self, element):
    ...         return element % 2 == 0
    >>> list(load(range(6), num_epochs=1, transformations=[Even()]))
    [0, 2, 4]
    """

    @abstractmethod
    def filter(self, element: Element, /) -> bool:
        """Return whether to keep the element.

        Args:
            element: An element of the step below, or a record of the source.
        """


class FlatMap(_Transformation):
    """Maps one element to a sequence of at most `max_fan_out` elements, which may be empty.

    >>> from gristmill import load
    >>> class Words(FlatMap):
    ...     max_fan_out = 10
    ...
    ...     def flat_map(self, element):
    ...         return element.split()
    >>> list(load(["one two", "", "three"], num_epochs=1, transformations=[Words()]))
    ['one', 'two', 'three']
    """

    max_fan_out: int

    @abstractmethod
    def flat_map(self, element: Element, /) -> Sequence[Element]:
        """Return the elements that replace this one.

        Args:
            element: An element of the step below, or a record of the source.
        """


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

    Raises:
        PlanError: If `batch_size` is below 1.
        PlanTypeError: If an argument has the wrong type.
    """

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Element]], Element] | None = None

    def __repr__(self) -> str:  # as in Grain, but without the address of a function
        return (
            f"Batch(batch_size={self.batch_size}, drop_remainder={self.drop_remainder}, "
            f"batch_fn={show_value(self.batch_fn)})"
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", as_batch_size(self.batch_size))
        object.__setattr__(self, "drop_remainder", as_bool("drop_remainder", self.drop_remainder))
        if self.batch_fn is not None and not callable(self.batch_fn):
            raise PlanTypeError(f"`batch_fn` must be callable, got {self.batch_fn!r}.")


Transformation: TypeAlias = (
    Batch
    | BucketByLength
    | Filter
    | FlatMap
    | Map
    | MapWithIndex
    | RandomMap
    | Scan
    | TfRandomMap
    | Unbatch
    | Window
)
"""A step of a pipeline: an instance of one of these classes, or of one derived from them."""

Transformations: TypeAlias = Sequence[Transformation]
"""The steps of a pipeline, in their order."""
