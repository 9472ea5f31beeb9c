"""Find how far a position of a plan is in each of its sources."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from gristmill._plan.nodes.base import Node, RecordsNode
from gristmill._plan.nodes.combine import ChooseNode
from gristmill._plan.nodes.combine_streams import ChainNode
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.nodes.stream import StatefulNode
from gristmill._plan.traverse import bottom_of
from gristmill.types import Cursor

_LOOKAHEAD = 4096
"""How many elements of a mixture are searched for the next one of a source."""


@final
@dataclass(frozen=True)
class SourcePosition:
    """The next element of a source, or of a dataset that no position can be followed through."""

    label: str
    index: int
    length: int

    def __str__(self) -> str:
        epoch, within = divmod(self.index, max(1, self.length))
        return f"{self.label}: epoch {epoch}, {within:,} of {self.length:,}"


def source_positions(plan: Node, cursor: Cursor | None) -> Iterator[SourcePosition]:
    """Yield how far a cursor is in each source: how many records of it were read.

    >>> from gristmill import MapDataset
    >>> mixed = MapDataset.mix([MapDataset.range(9).repeat(), MapDataset.range(50)], [3, 1])
    >>> for position in source_positions(mixed.to_iter_dataset()._plan_node, (20,)):
    ...     print(position)
    RangeDataSource(start=0, stop=9, step=1): epoch 1, 6 of 9
    RangeDataSource(start=0, stop=50, step=1): epoch 0, 5 of 50
    """
    base = bottom_of(plan)
    if isinstance(base, RecordsNode):
        index = 0 if cursor is None else cursor[0]
        if isinstance(base, SampleNode):
            (first,) = base.indices(range(index, index + 1))
            yield SourcePosition(base.parent.label, int(first), base.parent.length())
        else:
            yield from _positions_at(base.parent, index)
        return
    state = None if cursor is None else cursor[0]
    if isinstance(base, ChainNode):
        for stream in base.remaining(state)[-1:]:
            yield from source_positions(stream.node, stream.cursor)
        return
    cursors = base.read_cursors(state) if isinstance(base, StatefulNode) else None
    for parent, below in zip(base.parents, cursors or [], strict=False):
        yield from source_positions(parent, below)


def _positions_at(dataset: Node, index: int) -> Iterator[SourcePosition]:
    """Yield how far an index of a dataset is in each of its sources."""
    if isinstance(dataset, ChooseNode):
        ahead = np.arange(index, min(index + _LOOKAHEAD, 2**62))
        numbers, within = dataset.locate(ahead)
        for number, parent in enumerate(dataset.parents):
            found = np.flatnonzero(numbers == number)
            if len(found):
                yield from _positions_at(parent, int(within[found[0]]))
        return
    num_read = dataset.num_read(index)
    if num_read is None:
        yield SourcePosition(dataset.label, index, dataset.length())
    else:
        yield from _positions_at(dataset.parents[0], num_read)
