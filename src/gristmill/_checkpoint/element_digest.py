"""A checksum of an element, by which two runs are compared bit for bit.

Every byte counts, with its type, shape and place in the tree. Large arrays are checked at the speed
of the memory: words are added up in columns, and only the sums get a CRC. That finds differences
that happen, such as other records, another order, other random numbers or a flipped bit. It is no
protection against forgery.
"""

import operator
import zlib
from itertools import accumulate
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._base.trees.tree import leaves_with_paths
from gristmill.types import Element, SupportsArray

_NUM_COLUMNS = (1021, 1019, 1013)
"""Words in a row of the table whose columns are added up: a prime that divides the size of no axis.
So when an array is shifted or its items change places, words come into other columns."""

_NUM_ROWS = 65
"""The largest number of rows of a table: half a megabyte, which fits into a cache. It is odd: if
the top bit of every word is flipped, as when all numbers change their sign, the sums differ."""


def element_digest(element: Element) -> int:
    """Return a checksum of 32 bits of all leaves of an element.

    >>> import numpy as np
    >>> element_digest({"a": np.arange(3)}) == element_digest({"a": np.array([0, 1, 2])})
    True
    >>> element_digest(np.arange(3)) == element_digest(np.arange(3, dtype=np.int32))
    False
    """
    digest = 0
    for path, leaf in leaves_with_paths(element):
        digest = _leaf_digest(path, leaf, digest)
    return digest


def _leaf_digest(path: str, leaf: Any, digest: int) -> int:
    if isinstance(leaf, np.ndarray):
        array = cast("NDArray[Any]", leaf)
        digest = zlib.crc32(f"{path} {array.dtype.str} {array.shape}".encode(), digest)
        if array.dtype.hasobject:
            for number, item in enumerate(array.ravel().tolist()):
                digest = _leaf_digest(str(number), item, digest)
            return digest
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return _bytes_digest(data, digest, _num_columns(array))
    if isinstance(leaf, bytes | bytearray):
        digest = zlib.crc32(f"{path} bytes {len(leaf)}".encode(), digest)
        return _bytes_digest(np.frombuffer(leaf, np.uint8), digest)
    if isinstance(leaf, SupportsArray) and not isinstance(leaf, np.generic):
        return _leaf_digest(path, np.asarray(leaf), digest)  # of JAX or PyTorch
    other = cast("object", leaf)
    kind, shown = type(other).__qualname__, str(other) if isinstance(other, str) else repr(other)
    if " at 0x" in shown and not isinstance(other, str):
        shown = ""  # an address differs in each run; the type remains
    return zlib.crc32(f"{path} {kind} {shown}".encode(errors="surrogatepass"), digest)


def _num_columns(array: NDArray[Any]) -> int:
    """Return the first number of columns that divides the distance between no two items."""
    sizes: list[int] = [array.itemsize, *array.shape[:0:-1]]
    distances: list[int] = list(accumulate(sizes, operator.mul))
    for count in _NUM_COLUMNS:
        if all(distance % (8 * count) for distance in distances):
            return count
    return _NUM_COLUMNS[-1]


def _bytes_digest(data: NDArray[np.uint8], digest: int, num_columns: int = _NUM_COLUMNS[0]) -> int:
    row_bytes, start = 8 * num_columns, 0
    num_rows = data.nbytes // row_bytes
    while num_rows:
        count = min(num_rows - (num_rows + 1) % 2, _NUM_ROWS)
        end = start + count * row_bytes
        table = data[start:end].view(np.uint64).reshape(count, num_columns)
        digest = zlib.crc32(np.add.reduce(table, axis=0).data, digest)
        num_rows, start = (num_rows - count if num_rows > _NUM_ROWS else 0), end
    return zlib.crc32(data[start:].data, digest)
