"""Indices as a range, where they are evenly spaced, or as an array."""

from collections.abc import Sequence

import numpy as np

from gristmill.types import Indices, Span


def as_indices(span: Span | Sequence[int]) -> Indices:
    """Give an array; NumPy itself would go through a range one by one.

    >>> as_indices(range(3, 9, 2)).tolist()
    [3, 5, 7]
    """
    if isinstance(span, range):
        return np.arange(span.start, span.stop, span.step, dtype=np.int64)
    return np.asarray(span, dtype=np.int64)
