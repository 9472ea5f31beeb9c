"""Protocols that user objects implement, and type aliases used by all packages."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Element: TypeAlias = Any
"""One element of a stream: any pytree."""

Tree: TypeAlias = Any
"""A pytree whose leaves are known to be of one type, such as arrays."""

Leaf: TypeAlias = Any
"""A leaf of a pytree: an array, a number, a string or any other object."""

JsonObject: TypeAlias = dict[str, Any]
"""An object in JSON, as the module `json` parses it."""

AnyArray: TypeAlias = NDArray[Any]
"""A NumPy array of any dtype and shape."""

AnyDType: TypeAlias = np.dtype[Any]
"""Any NumPy dtype."""

Indices: TypeAlias = NDArray[np.int64]
"""Many indices or positions. If some exceed 64 bits, they are Python integers (dtype `object`): see
`_base/indices.py`."""

Span: TypeAlias = range | Indices
"""Many positions or record keys: a range if they are evenly spaced, which costs no memory."""

Cursor: TypeAlias = tuple[Any, ...]
"""A position in a stream, independent of blocks and executors.

The position of a record (or the state of a stateful stage), followed by one number for each flat
map, bottom up: how many elements that it made from its current input were already yielded."""

T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class RandomAccessDataSource(Protocol[T_co]):
    """A data source: an object with a length that returns the record at an index.

    Lists, arrays and user-defined classes implement it as they are; subclassing it is optional.

    >>> isinstance(["a", "b"], RandomAccessDataSource)
    True
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> T_co: ...


@runtime_checkable
class SupportsGetItems(Protocol[T_co]):
    """A source that reads many records in one call and returns them in the requested order."""

    def __getitems__(self, indices: Sequence[int], /) -> Sequence[T_co]: ...


@runtime_checkable
class SupportsCollate(Protocol):
    """A source or stream with its own default function for batching its elements."""

    @property
    def collate(self) -> Callable[[Sequence[Element]], Element] | None: ...


@runtime_checkable
class SupportsArray(Protocol):
    """An object that NumPy can convert to an array: a `jax.Array`, a CPU tensor, ..."""

    def __array__(self) -> NDArray[Any]: ...
