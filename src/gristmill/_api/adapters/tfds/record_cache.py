"""Caches the decoded records of a small dataset in memory, so that each is decoded once."""

import threading
from typing import final

import numpy as np
from numpy.typing import NDArray

from gristmill._api.adapters.tfds.layout import RecordLayout
from gristmill.types import AnyArray, Indices

MAX_CACHE_BYTES = 256 * 2**20
"""A larger split is decoded again each time. TFDS itself has about the same limit."""

_MAX_READ_AHEAD_RECORDS, _MAX_READ_AHEAD_BYTES = 1536, 2**21
"""Up to this many records, or this many bytes, are decoded ahead: longer blocks are faster."""


@final
class RecordCache:
    """Holds one array for each field of the records, and which records are in them so far.

    Threads share it. A thread that decodes records holds `fill_lock`, and the next thread to hold
    it finds them cached.

    Args:
        layout: The layout of the records, whose fields all have a fixed size.
        count: Number of records of the split.
        record_bytes: Size of a decoded record.
    """

    def __init__(self, layout: RecordLayout, count: int, record_bytes: int) -> None:
        self._layout = layout
        self._count = count
        self._num_ahead = min(
            _MAX_READ_AHEAD_RECORDS, _MAX_READ_AHEAD_BYTES // max(1, record_bytes)
        )
        self._is_cached = np.zeros(count, np.bool_)
        self.fill_lock = threading.Lock()
        # The system allocates this memory page by page, when it is written to.
        self.columns: list[AnyArray] = [
            np.empty((count, *(field.shape or ())), field.dtype) for field in layout.fields
        ]

    @staticmethod
    def for_records(layout: RecordLayout, count: int) -> "RecordCache | None":
        """Return a cache for all records, or None if they vary in size or are too large."""
        size = layout.record_bytes
        if not layout.is_columnar or size is None or size * count > MAX_CACHE_BYTES:
            return None
        return RecordCache(layout, count, size)

    def find_missing(self, indices: Indices) -> Indices:
        """Return the indices that are not cached, sorted and without duplicates."""
        return _sort_unique(indices[~self._is_cached[indices]])

    def add_read_ahead(self, missing: Indices, step: int) -> Indices:
        """Add the indices that are likely to be read next, if records are read in steps."""
        first = int(missing[0])
        window = np.arange(first, self._count, step)[: self._num_ahead]
        return _sort_unique(np.concatenate([missing, window[~self._is_cached[window]]]))

    def store(
        self, indices: Indices, columns: list[AnyArray], is_regular: NDArray[np.bool_]
    ) -> None:
        """Store decoded records, except for those that do not fit into the columns."""
        for cached, column in zip(self.columns, columns, strict=True):
            cached[indices[is_regular]] = column[is_regular]
        self._is_cached[indices[is_regular]] = True


def _sort_unique(indices: Indices) -> Indices:
    """Return the indices sorted and without duplicates.

    `np.unique` is not used, as its first call imports `numpy.ma`: 20 ms before the first batch.
    """
    ordered = np.sort(indices)
    return ordered[np.diff(ordered, prepend=-1) > 0]
