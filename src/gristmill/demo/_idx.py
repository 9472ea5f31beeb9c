"""The idx format of the MNIST files: a header that gives the shape, then unsigned bytes.

bytes 0-1   zero
byte  2     the type of the items, 8 for unsigned bytes
byte  3     the number of axes
then        one big-endian 32-bit length per axis, and the items in C order
"""

import math
import struct

import numpy as np
from numpy.typing import NDArray

_UNSIGNED_BYTE = 8


def parse_idx(data: bytes, *, num_axes: int, start: int = 0) -> tuple[NDArray[np.uint8], int]:
    """Give the array that starts at byte `start` and the position of the byte after it.

    The array is a read-only view of `data`; nothing is copied. A `ValueError` says in which way
    the bytes are not an idx array of unsigned bytes with `num_axes` axes.

    >>> array, end = parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 4]), num_axes=1)
    >>> array.tolist(), end
    ([7, 0, 4], 11)
    """
    items_start = start + 4 + 4 * num_axes
    if len(data) < items_start:
        raise ValueError(
            f"it ends inside its header, which takes {items_start - start} bytes and has "
            f"{max(len(data) - start, 0)}"
        )
    expected = bytes([0, 0, _UNSIGNED_BYTE, num_axes])
    magic = data[start : start + 4]
    if magic != expected:
        raise ValueError(f"it starts with the magic number {magic.hex()}, not {expected.hex()}")
    shape: tuple[int, ...] = struct.unpack_from(f">{num_axes}I", data, start + 4)
    end = items_start + math.prod(shape)
    if len(data) < end:
        raise ValueError(
            f"its header announces {math.prod(shape)} bytes of shape {shape}, and "
            f"{len(data) - items_start} follow"
        )
    items = np.frombuffer(data, dtype=np.uint8, count=end - items_start, offset=items_start)
    return items.reshape(shape), end


def format_idx(array: NDArray[np.uint8]) -> bytes:
    """Give the bytes that `parse_idx` turns back into `array`.

    >>> format_idx(np.array([7, 0, 4], np.uint8)).hex(" ")
    '00 00 08 01 00 00 00 03 07 00 04'
    """
    header = struct.pack(f">HBB{array.ndim}I", 0, _UNSIGNED_BYTE, array.ndim, *array.shape)
    return header + array.tobytes()
