"""Snapshot of many small arrays, to find out whether any of them has changed since."""

import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

AnyArray: TypeAlias = NDArray[Any]

_MAX_MEAN_BYTES = 1024
"""With larger arrays, packing them again takes hardly longer, and a snapshot too much memory."""

_MAX_DTYPES = 16

_ARRAYS_PER_CHUNK = 4096
"""Arrays that are joined at a time: as many as fit a cache."""


@final
class ArraySnapshot:
    """The content and layout of arrays at the time of its creation.

    >>> arrays = [np.zeros(2), np.ones(3)]
    >>> snapshot = ArraySnapshot(arrays)
    >>> snapshot.is_current
    True
    >>> arrays[1][0] = 5
    >>> snapshot.is_current
    False
    """

    def __init__(self, arrays: Iterable[AnyArray]) -> None:
        self._by_dtype: dict[np.dtype[Any], list[AnyArray]] = defaultdict(list)
        for array in arrays:
            self._by_dtype[array.dtype].append(array)
        self._state = [[*_state(group)] for group in self._by_dtype.values()]

    @property
    def is_current(self) -> bool:
        """Whether no array has changed."""
        return all(
            {*map(attrgetter("dtype"), arrays)} == {dtype}
            and all(map(operator.eq, _state(arrays), state))
            for (dtype, arrays), state in zip(self._by_dtype.items(), self._state, strict=True)
        )


def snapshot(arrays: Sequence[AnyArray]) -> ArraySnapshot | None:
    """Return a snapshot of arrays; `None` if they are so large or varied that it does not pay."""
    dtypes: set[np.dtype[Any]] = {*map(attrgetter("dtype"), arrays)}
    if len(dtypes) > _MAX_DTYPES or any(dtype.hasobject for dtype in dtypes):
        return None
    if sum(map(attrgetter("nbytes"), arrays)) > _MAX_MEAN_BYTES * len(arrays):
        return None
    return ArraySnapshot(arrays)


def _state(arrays: Sequence[AnyArray]) -> Iterator[bytes]:
    """Yield all that can change of arrays of the same dtype, except for that."""
    yield bytes(map(attrgetter("ndim"), arrays))
    yield bytes(map(attrgetter("flags.writeable"), arrays))
    for name in ("shape", "strides"):
        sizes: Iterable[int] = chain.from_iterable(map(attrgetter(name), arrays))
        yield np.fromiter(sizes, np.int64).tobytes()
    for start in range(0, len(arrays), _ARRAYS_PER_CHUNK):
        yield np.concatenate(arrays[start : start + _ARRAYS_PER_CHUNK], axis=None).tobytes()
