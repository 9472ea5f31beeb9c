"""The types that all readers share, and what a reader knows of the plan around its node.

Random access has one verb: a *reader* takes some positions and returns a block result.

    Reader    Span -> BlockResult     elements at some positions (or indices) of a node
    RunStep   Block -> BlockResult    one step on elements that were already read

What a reader returns for several positions is what it returns for each of them, concatenated, up
to the first error. The positions are either

- of a *stream* (the nodes of a sampled plan, and those over `AccessNode`): an element has the
  position of its record as lineage, and positions without an element are left out; or
- the *indices* of a dataset (`by_index`: all nodes below `AccessNode`): an element has its own
  index as lineage, each index has one row, and `None` stands for an absent element.

`AccessNode` is the boundary between the two. Positions stay a `range` with step 1 as far down as
possible, since sources read a range fastest.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.trees.columns import Columns
from gristmill._engine.access.nested_clock import NestedClock
from gristmill._engine.blocks.block import BadRecord, Block, BlockResult, in_rows
from gristmill._engine.blocks.lineage import lineage_of
from gristmill._plan.nodes.base import Step
from gristmill.types import Element, Span

Reader: TypeAlias = Callable[[Span], BlockResult]
RunStep: TypeAlias = Callable[[Block], BlockResult]
Allocate: TypeAlias = Callable[..., NDArray[Any]]
"""Returns an uninitialized array, as `np.empty` does."""


@final
@dataclass(frozen=True, kw_only=True)
class ReadContext:
    """What a reader depends on besides its own node."""

    by_index: bool
    """Whether elements are read by index, from a dataset, and absent ones are `None`."""
    allocate: Allocate = np.empty
    """Allocates the arrays of batches."""
    steps_above: Sequence[Step] = ()
    """The steps of the stream above the node, bottom up."""
    num_flat_maps: int = 0
    """The number of flat maps of the stream: a cursor has an entry for each."""
    skips_errors: bool = False
    """Whether records that raise are skipped."""
    clock: NestedClock | None = None
    """Measures the steps of a dataset that is iterated over."""
    stops_at_absent: bool = False
    """Whether an absent element ends the block with `AbsentElementError`."""


def result_at(
    indices: Span,
    data: list[Element] | Columns,
    error: BaseException | None,
    bad_records: Iterable[BadRecord] = (),
) -> BlockResult:
    """Return the elements at the first of some indices, and the error that follows them.

    Args:
        indices: The indices.
        data: The elements.
        error: The error.
        bad_records: What was left out, in rows of `data`; those of further rows are dropped.
    """
    block = Block(data, lineage_of(indices[: len(data)]))
    if bad_records:
        bad_records = in_rows(bad_records, len(data))
    return BlockResult(block, error, row=len(data), bad_records=tuple(bad_records))
