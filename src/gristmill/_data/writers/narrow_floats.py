"""Round 64-bit floats to 32 bits, for formats that have no wider ones, and for smaller files."""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from gristmill._base.trees.tree import map_leaves
from gristmill.errors import BatchError
from gristmill.types import AnyArray, Element, Leaf


def narrow_floats(read: Callable[[range], Sequence[Element]]) -> Callable[[range], list[Element]]:
    """Return a function that reads records like `read`, with 64-bit floats rounded to 32 bits.

    >>> narrow_floats(lambda indices: [{"x": 1 / 3, "id": 7}])(range(1))
    [{'x': np.float32(0.33333334), 'id': 7}]

    Args:
        read: Returns the records at some indices.

    Raises:
        BatchError: A number is too large for 32 bits.
    """

    def read_narrow(indices: range) -> list[Element]:
        records = read(indices)
        try:
            with np.errstate(over="raise"):
                return [map_leaves(_narrow, record) for record in records]
        except FloatingPointError:
            raise BatchError(
                f"Some of the records {indices.start:,} to {indices.stop - 1:,} hold a number "
                "that is too large for 32 bits. Leave its column out, or write Parquet files "
                "without rounding."
            ) from None

    return read_narrow


def _narrow(leaf: Leaf) -> Leaf:
    if isinstance(leaf, float):  # also `np.float64`
        return np.float64(leaf).astype(np.float32)
    if not isinstance(leaf, np.ndarray):
        return leaf
    array = cast("AnyArray", leaf)
    return array.astype(np.float32) if array.dtype == np.float64 else array
