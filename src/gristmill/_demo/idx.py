"""Parse and format idx, the format of the MNIST files: a header with the shape, then bytes.

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
    """Return the array that starts at byte `start`, and the position of the byte after it.

    The array is a read-only view of `data`; nothing is copied.

    Args:
        data: One or more idx arrays.
        num_axes: The expected number of axes.
        start: The position of the first byte of the array.

    Raises:
        ValueError: If the bytes are not an idx array of unsigned bytes with `num_axes` axes. The
            message is a clause whose subject is the file.

    >>> array, end = parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 4]), num_axes=1)
    >>> array.tolist(), end
    ([7, 0, 4], 11)
    """
    items_start = start + 4 + 4 * num_axes
    if len(data) < items_start:
        raise ValueError(
            f"it ends inside its header: expected {items_start - start} bytes, got "
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
            f"its header declares {math.prod(shape)} bytes of shape {shape}, but "
            f"{len(data) - items_start} follow"
        )
    items = np.frombuffer(data, dtype=np.uint8, count=end - items_start, offset=items_start)
    return items.reshape(shape), end


def format_idx(array: NDArray[np.uint8]) -> bytes:
    """Return `array` in idx format, as the inverse of `parse_idx`.

    >>> format_idx(np.array([7, 0, 4], np.uint8)).hex(" ")
    '00 00 08 01 00 00 00 03 07 00 04'
    """
    header = struct.pack(f">HBB{array.ndim}I", 0, _UNSIGNED_BYTE, array.ndim, *array.shape)
    return header + array.tobytes()
