"""Protocols that user objects implement, and type aliases used by all packages."""

from collections.abc import Callable as _Callable
from collections.abc import Sequence as _Sequence
from typing import Any as _Any
from typing import Protocol as _Protocol
from typing import TypeAlias as _TypeAlias
from typing import TypeVar as _TypeVar
from typing import runtime_checkable as _runtime_checkable

import numpy as _np
from numpy.typing import NDArray as _NDArray

__all__ = [
    "AnyArray",
    "AnyDType",
    "Cursor",
    "Element",
    "Indices",
    "JsonObject",
    "Leaf",
    "RandomAccessDataSource",
    "Span",
    "SupportsArray",
    "SupportsCollate",
    "SupportsGetItems",
    "Tree",
]

Element: _TypeAlias = _Any
"""One element of a stream: any pytree."""

Tree: _TypeAlias = _Any
"""A pytree whose leaves are known to be of one type, such as arrays."""

Leaf: _TypeAlias = _Any
"""A leaf of a pytree: an array, a number, a string or any other object."""

JsonObject: _TypeAlias = dict[str, _Any]
"""An object in JSON, as the module `json` parses it."""

AnyArray: _TypeAlias = _NDArray[_Any]
"""A NumPy array of any dtype and shape."""

AnyDType: _TypeAlias = _np.dtype[_Any]
"""Any NumPy dtype."""

Indices: _TypeAlias = _NDArray[_np.int64]
"""Many indices or positions. If some exceed 64 bits, they are Python integers (dtype `object`): see
`_base/indices.py`."""

Span: _TypeAlias = range | Indices
"""Many positions or record keys: a range if they are evenly spaced, which costs no memory."""

Cursor: _TypeAlias = tuple[_Any, ...]
"""A position in a stream, independent of blocks and executors.

The position of a record (or the state of a stateful stage), followed by one number for each flat
map, bottom up: how many elements that it made from its current input were already yielded."""

_T_co = _TypeVar("_T_co", covariant=True)


@_runtime_checkable
class RandomAccessDataSource(_Protocol[_T_co]):
    """A data source: an object with a length that returns the record at an index.

    Lists, arrays and user-defined classes implement it as they are; subclassing it is optional.

    >>> isinstance(["a", "b"], RandomAccessDataSource)
    True
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> _T_co: ...


@_runtime_checkable
class SupportsGetItems(_Protocol[_T_co]):
    """A source that reads many records in one call and returns them in the requested order.

    >>> class Squares:
    ...     def __len__(self):
    ...         return 4
    ...
    ...     def __getitem__(self, index):
    ...         return index**2
    ...
    ...     def __getitems__(self, indices):
    ...         return [index**2 for index in indices]
    >>> isinstance(Squares(), SupportsGetItems)
    True
    """

    def __getitems__(self, indices: _Sequence[int], /) -> _Sequence[_T_co]: ...


@_runtime_checkable
class SupportsCollate(_Protocol):
    """A source or stream with its own default function for batching its elements.

    >>> class Names(list):
    ...     collate = staticmethod(list)  # a batch is a list, not an array
    >>> isinstance(Names(["a", "b"]), SupportsCollate)
    True
    """

    @property
    def collate(self) -> _Callable[[_Sequence[Element]], Element] | None: ...


@_runtime_checkable
class SupportsArray(_Protocol):
    """An object that NumPy can convert to an array: a `jax.Array`, a CPU tensor, ...

    >>> import numpy as np
    >>> isinstance(np.zeros(3), SupportsArray)
    True
    """

    def __array__(self) -> _NDArray[_Any]: ...
