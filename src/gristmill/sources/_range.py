"""Integers as records."""

from collections.abc import Sequence
from typing import SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

from gristmill._check import as_int
from gristmill.errors import PlanError


@final
class RangeDataSource:
    """The integers of `range(start, stop, step)`.

    >>> source = RangeDataSource(0, 10, 2)
    >>> len(source), source[1]
    (5, 2)
    """

    def __init__(self, start: int, stop: int, step: int) -> None:
        start, stop, step = (
            as_int(name, value, minimum=-(2**63), maximum=2**63 - 1)
            for name, value in (("start", start), ("stop", stop), ("step", step))
        )
        if step == 0:
            raise PlanError("`step` must not be 0. Use 1 to count up, -1 to count down.")
        self._records = range(start, stop, step)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, record_key: SupportsIndex) -> int:
        key = record_key.__index__()
        if not 0 <= key < len(self._records):
            raise IndexError(f"`record_key` must be in [0, {len(self)}), got {key}.")
        return self._records[key]

    def __getitems__(self, indices: Sequence[int] | NDArray[np.int64]) -> list[int]:
        records = self._records
        if isinstance(indices, range) and len(indices):  # a range of a range needs no arithmetic
            self._check(min(indices[0], indices[-1]), max(indices[0], indices[-1]))
            first, stride = records[indices[0]], records.step * indices.step
            return list(range(first, first + stride * len(indices), stride))
        keys = np.asarray(indices, dtype=np.int64)
        if len(keys):
            self._check(int(keys.min()), int(keys.max()))
        return (records.start + keys * records.step).tolist()

    def _check(self, lowest: int, highest: int) -> None:
        if lowest < 0 or highest >= len(self):
            raise IndexError(f"`indices` must be in [0, {len(self)}).")

    def __repr__(self) -> str:
        records = self._records
        return f"RangeDataSource(start={records.start}, stop={records.stop}, step={records.step})"
