"""Types of the arguments and results of dataset methods."""

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

T_contra = TypeVar("T_contra", contravariant=True)
S_co = TypeVar("S_co", covariant=True)


class SupportsMap(Protocol[T_contra, S_co]):
    """A `gristmill.transforms.Map`, or Grain's."""

    def map(self, element: T_contra, /) -> S_co: ...


class SupportsMapWithIndex(Protocol[T_contra, S_co]):
    """A `gristmill.transforms.MapWithIndex`, or Grain's."""

    def map_with_index(self, index: int, element: T_contra, /) -> S_co: ...


class SupportsRandomMap(Protocol[T_contra, S_co]):
    """A `gristmill.transforms.RandomMap`, or Grain's."""

    def random_map(self, element: T_contra, rng: np.random.Generator, /) -> S_co: ...


class SupportsFilter(Protocol[T_contra]):
    """A `gristmill.transforms.Filter`, or Grain's."""

    def filter(self, element: T_contra, /) -> bool: ...


class SupportsFlatMap(Protocol[T_contra, S_co]):
    """A `gristmill.transforms.FlatMap`, or Grain's."""

    def flat_map(self, element: T_contra, /) -> Iterable[S_co]: ...


class SupportsFields(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


FieldsT = TypeVar("FieldsT", bound="SupportsFields | NamedTuple")
"""An element whose batch is of the same class: a dataclass or a named tuple."""

Leaf: TypeAlias = complex | str | bytes | np.generic | NDArray[Any]
"""An element, or a leaf of one, that is stacked to an array. `complex` includes int and float."""

Array: TypeAlias = NDArray[Any]


@final
class UntypedElement:
    """No element has this type, but `Any` matches it.

    The first overload of `batch` takes elements of this type. Without it, a dataset of `Any` would
    match the overload for `Leaf`, and its batches would be typed as arrays.
    """
