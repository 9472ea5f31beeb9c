"""The protocols that users' objects fulfil, and the aliases the engine speaks in."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Element: TypeAlias = Any
"""One element of a stream: any pytree the user likes."""

Tree: TypeAlias = Any
"""A pytree whose leaves are known to be of one kind, such as arrays."""

Indices: TypeAlias = NDArray[np.int64]

Span: TypeAlias = range | Indices
"""Many positions or record keys: a range where they are regular, which costs nothing to make."""

T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class RandomAccessDataSource(Protocol[T_co]):
    """Where records are: anything that has a length and gives the record at an index.

    Lists, arrays and users' own classes fulfil it as they are; deriving from it is optional.

    >>> isinstance(["a", "b"], RandomAccessDataSource)
    True
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> T_co: ...


@runtime_checkable
class SupportsGetItems(Protocol[T_co]):
    """A source that reads many records in one call, in the order asked for."""

    def __getitems__(self, indices: Sequence[int], /) -> Sequence[T_co]: ...


@runtime_checkable
class SupportsCollate(Protocol):
    """A source or a stream whose elements are batched in a way of their own, unless told else."""

    @property
    def collate(self) -> Callable[[Sequence[Element]], Element] | None: ...


@runtime_checkable
class SupportsArray(Protocol):
    """What NumPy can turn into an array: a `jax.Array`, a CPU tensor, ..."""

    def __array__(self) -> NDArray[Any]: ...
