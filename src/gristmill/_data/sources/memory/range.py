"""A source of evenly spaced integers."""

from collections.abc import Sequence
from typing import SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.checks import as_int
from gristmill._base.indices import check_index, check_indices
from gristmill.errors import PlanError


@final
class RangeDataSource:
    """The integers of `range(start, stop, step)`.

    >>> source = RangeDataSource(0, 10, 2)
    >>> len(source), source[1]
    (5, 2)

    Args:
        start: The first integer.
        stop: The end of the range, which is not part of it.
        step: The difference between neighbours; negative to count down.

    Raises:
        PlanError: If `step` is 0.
        PlanTypeError: If an argument has the wrong type.
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
        return self._records[check_index(record_key, len(self._records), name="record_key")]

    def __getitems__(self, indices: Sequence[int] | NDArray[np.int64]) -> list[int]:
        records = self._records
        if isinstance(indices, range) and len(indices):  # a range of a range needs no arithmetic
            check_indices(indices, len(records))
            first, stride = records[indices[0]], records.step * indices.step
            return list(range(first, first + stride * len(indices), stride))
        keys = np.asarray(indices, dtype=np.int64)
        check_indices(keys, len(records))
        return (records.start + keys * records.step).tolist()

    def __repr__(self) -> str:
        records = self._records
        return f"RangeDataSource(start={records.start}, stop={records.stop}, step={records.step})"
