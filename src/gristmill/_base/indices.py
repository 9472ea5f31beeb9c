"""Convert indices between ranges and arrays."""

from collections.abc import Sequence

import numpy as np

from gristmill.types import Indices, Span


def as_indices(span: Span | Sequence[int]) -> Indices:
    """Return indices as an array of 64-bit integers.

    A range is converted by `np.arange`; `np.asarray` would iterate over it in Python.

    >>> as_indices(range(3, 9, 2)).tolist()
    [3, 5, 7]
    """
    if isinstance(span, range):
        return np.arange(span.start, span.stop, span.step, dtype=np.int64)
    return np.asarray(span, dtype=np.int64)
