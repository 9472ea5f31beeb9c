"""Read the elements of a dataset by ranges of positions, without those that are absent."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill._columns import Columns
from gristmill._span import as_indices
from gristmill.execute._batch import SparseError
from gristmill.execute._block import Block
from gristmill.execute._fetch import open_fetch, present_rows
from gristmill.execute._outcome import Outcome, Seen
from gristmill.execute._track import DenseTrack
from gristmill.plan import AccessNode


def access_reader(
    node: AccessNode,
    allocate: Callable[..., NDArray[Any]],
    *,
    num_flat_maps: int,
    num_above: int,
    is_strict: bool,
) -> Callable[[range], Outcome]:
    """Give the function that reads a range of positions; if strict, up to an absent element."""
    fetch = open_fetch(node.parent, allocate)

    def seen(positions: range, present: list[int] | None) -> tuple[Seen, ...]:
        if node.limits is None:
            return ()
        has_passed = np.full(len(positions), present is None)
        has_passed[present or []] = True
        return (Seen(num_above, as_indices(positions), has_passed),)

    def read(positions: range) -> Outcome:
        made = fetch(positions)
        data = made.block.data
        track = DenseTrack.of_records(positions, num_flat_maps=num_flat_maps)[: len(data)]
        block = Block(data, track)
        present = None if node.keeps_none or isinstance(data, Columns) else present_rows(data)
        if present is not None and is_strict:
            row = next(row for row, place in enumerate([*present, -1]) if row != place)
            return Outcome(block[:row], SparseError(), row, seen=seen(positions[:row], None))
        if present is not None:
            block = block.take(np.array(present, dtype=np.int64))
        return Outcome(block, made.error, made.row, seen=seen(positions[: len(data)], present))

    return read
