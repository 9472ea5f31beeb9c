"""Decoded records of a small dataset, kept in memory so that each is decoded once."""

import threading
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gristmill.adapters._tfds_layout import Layout
from gristmill.types import Indices

MOST_BYTES = 256 * 2**20
"""A split that takes more decoded is decoded anew each time. TFDS's own limit is about the same."""

_MOST_AHEAD, _MOST_BYTES_AHEAD = 1536, 2**21
"""Decoding takes more records along up to so many, or so much memory: a longer block is faster."""


@final
class KeptRecords:
    """One array for each value of the records, and which records are in them so far.

    Threads share it: who decodes holds `filling`, and another finds the records kept then.
    """

    def __init__(self, layout: Layout, count: int, record_bytes: int) -> None:
        self._layout = layout
        self._count = count
        self._ahead = min(_MOST_AHEAD, _MOST_BYTES_AHEAD // max(1, record_bytes))
        self._is_kept = np.zeros(count, np.bool_)
        self.filling = threading.Lock()
        # The memory is taken page by page, when it is written to.
        self.columns: list[NDArray[Any]] = [
            np.empty((count, *(leaf.shape or ())), leaf.dtype) for leaf in layout.leaves
        ]

    @staticmethod
    def for_records(layout: Layout, count: int) -> "KeptRecords | None":
        """Give room for all records, if they are of one size and not too many."""
        size = layout.record_bytes
        if not layout.is_columnar or size is None or size * count > MOST_BYTES:
            return None
        return KeptRecords(layout, count, size)

    def missing(self, indices: Indices) -> Indices:
        """Give those that are not kept yet, each once."""
        return _each_once(indices[~self._is_kept[indices]])

    def worth_reading(self, missing: Indices, step: int) -> Indices:
        """Add those that will be asked for next, if records are read in steps of one size."""
        first = int(missing[0])
        window = np.arange(first, self._count, step)[: self._ahead]
        return _each_once(np.concatenate([missing, window[~self._is_kept[window]]]))

    def keep(self, indices: Indices, columns: list[NDArray[Any]], is_there: Any) -> None:
        """Take decoded records, those that are there."""
        for kept, column in zip(self.columns, columns, strict=True):
            kept[indices[is_there]] = column[is_there]
        self._is_kept[indices[is_there]] = True


def _each_once(indices: Indices) -> Indices:
    """Give each index once, in order.

    Not by `np.unique`, whose first call imports `numpy.ma`: 20 ms before the first batch.
    """
    ordered = np.sort(indices)
    return ordered[np.diff(ordered, prepend=-1) > 0]
