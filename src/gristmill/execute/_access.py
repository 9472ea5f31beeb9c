"""Read the elements of a dataset by ranges of positions, without those that are absent."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill._columns import Columns
from gristmill.execute._batch import SparseError
from gristmill.execute._block import Block
from gristmill.execute._fetch import open_fetch, present_rows
from gristmill.execute._outcome import Outcome
from gristmill.execute._track import DenseTrack
from gristmill.execute._watch import Watch
from gristmill.plan import AccessNode


def access_reader(
    node: AccessNode,
    allocate: Callable[..., NDArray[Any]],
    *,
    num_flat_maps: int,
    is_strict: bool,
) -> Callable[[range], Outcome]:
    """Give the function that reads a range of positions; if strict, up to an absent element."""
    fetch = open_fetch(node.parent, allocate)
    watch = None if node.limits is None else Watch(node.parent.label, node.limits)

    def read(positions: range) -> Outcome:
        made = fetch(np.arange(positions.start, positions.stop))
        data = made.block.data
        track = DenseTrack.of_records(positions, num_flat_maps=num_flat_maps)[: len(data)]
        block = Block(data, track)
        present = None if node.keeps_none or isinstance(data, Columns) else present_rows(data)
        if present is not None and is_strict:
            row = next(row for row, place in enumerate([*present, -1]) if row != place)
            return Outcome(block[:row], SparseError(), row)
        if present is not None:
            block = block.take(np.array(present, dtype=np.int64))
        error = made.error
        if watch is not None:
            error = error or watch.count(len(data), len(block))
        return Outcome(block, error, made.row)

    return read
