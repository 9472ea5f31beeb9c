"""Filters, and the absent elements that they leave in a dataset.

A filter of a stream leaves elements out. A filter of a dataset leaves `None` at their indices: the
steps above pass over those, and they are left out where the dataset becomes a stream.
"""

import operator
from collections.abc import Sequence

import numpy as np

from gristmill._base.indices import as_indices
from gristmill._base.log_once import log_once
from gristmill._base.trees.columns import Columns
from gristmill._data.sources.memory.array import ArraySource
from gristmill._data.sources.memory.range import RangeDataSource
from gristmill._engine.access.context import ReadContext, Reader, RunStep
from gristmill._engine.access.skip_errors import absent_because_bad, skips_of
from gristmill._engine.blocks.block import Block, BlockResult, FilterCounts
from gristmill._engine.blocks.error_notes import call_each
from gristmill._engine.blocks.lineage import Lineage, lineage_of
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.combine import ChooseNode
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.hints import HintNode, SeedNode
from gristmill._plan.nodes.rearrange import RearrangeNode
from gristmill._plan.nodes.sampled import SourceNode
from gristmill._plan.nodes.steps import FilterNode
from gristmill.types import Element, Span


class AbsentElementError(Exception):
    """An element is absent where each position has to hold one. Never reaches the user."""


def filter_step(node: FilterNode, context: ReadContext) -> RunStep:
    """Return the function that keeps the elements of a block that pass."""
    num_above = len(context.steps_above)

    def run(block: Block) -> BlockResult:
        rows = block.rows()  # not columns from here on: the filter may write into an element
        answers, error = call_each(node, block.lineage, node.function, rows)
        passed, bool_error = call_each(node, block.lineage[: len(answers)], bool, answers)
        if context.by_index:
            filtered = block.with_rows(
                [row if has_passed else None for row, has_passed in zip(rows, passed, strict=False)]
            )
            return BlockResult(filtered, bool_error or error, row=len(passed))
        mask = np.array(passed, dtype=bool)
        filtered = block.with_rows(rows).take(np.flatnonzero(mask))
        counts: tuple[FilterCounts, ...] = ()
        if node.limits is not None:
            counts = (FilterCounts(num_above, block.lineage.positions()[: len(passed)], mask),)
        return BlockResult(filtered, bool_error or error, row=len(passed), filter_counts=counts)

    return run


def present_rows(rows: Sequence[Element]) -> list[int] | None:
    """Return the rows that hold an element, or `None` if all do, as is most common."""
    is_absent = list(map(operator.is_, rows, (None,) * len(rows)))
    if True not in is_absent:
        return None
    return [row for row, is_none in enumerate(is_absent) if not is_none]


def run_on_present(run: RunStep, block: Block, *, source: SourceNode | None = None) -> BlockResult:
    """Run a step on the elements that are present, and leave `None` where it is.

    Args:
        run: The step.
        block: The elements.
        source: The source whose records the elements are, if they are unchanged records.
    """
    if isinstance(block.data, Columns):
        return run(block)
    present = present_rows(block.data)
    if present is None:
        return run(block)
    _log_none_record(source, block.lineage, present)
    result = run(block.take(np.array(present, dtype=np.int64)))
    rows: list[Element] = [None] * len(block)
    for row, element in zip(present, result.block.rows(), strict=False):
        rows[row] = element
    if result.error is None:
        return BlockResult(block.with_rows(rows))
    end = present[result.row]
    return BlockResult(block.with_rows(rows[:end]), result.error, row=end)


def source_of_records(node: Node) -> SourceNode | None:
    """Return the source of a dataset whose elements are its unchanged records; else `None`."""
    while isinstance(node, RearrangeNode | HintNode | SeedNode):
        node = node.parent
    if isinstance(node, ChooseNode):
        found = [source_of_records(parent) for parent in node.parents]
        return found[0] if None not in found else None
    return node if isinstance(node, SourceNode) else None


def _log_none_record(source: SourceNode | None, lineage: Lineage, present: list[int]) -> None:
    """Log once that a source has records that are `None`, at the first row that is absent."""
    if source is None:
        return
    row = next(row for row, other in enumerate([*present, -1]) if row != other)
    log_once(
        f"none-record {source.site}",
        "A record of %s is None (element %d of the dataset at %s). None stands for an absent "
        "element of a `MapDataset`: iteration leaves all of them out. To keep them, use another "
        "value, or `to_iter_dataset(allow_nones=True)`.",
        source.label,
        lineage.position(row),
        source.site,
    )


def may_hold_absent(node: Node) -> bool:
    """Return whether elements of a dataset may be absent; false only where none can be."""
    while isinstance(node, RearrangeNode | SeedNode):
        node = node.parent
    return not (
        isinstance(node, SourceNode) and isinstance(node.source, RangeDataSource | ArraySource)
    )


def to_iter_reader(node: AccessNode, context: ReadContext, read_parent: Reader) -> Reader:
    """Return the reader of a dataset as a stream.

    Its positions are the indices of the dataset; those of absent elements are left out.
    """
    num_above = len(context.steps_above)
    source = source_of_records(node.parent)

    def filter_counts(positions: Span, present: list[int] | None) -> tuple[FilterCounts, ...]:
        if node.limits is None:
            return ()
        has_passed = np.full(len(positions), present is None)
        has_passed[present or []] = True
        return (FilterCounts(num_above, as_indices(positions), has_passed),)

    def read(positions: Span) -> BlockResult:
        result = read_parent(positions)
        data, error = result.block.data, result.error
        positions = positions[: len(data)]
        bad_rows = absent_because_bad(data, result.bad_records)
        skips = skips_of(result, lineage_of(positions, num_flat_maps=context.num_flat_maps))
        if bad_rows and not isinstance(data, Columns):  # not what a filter has removed
            kept = np.delete(np.arange(len(data)), bad_rows)
            data = [data[row] for row in kept.tolist()]
            positions = as_indices(positions)[kept]
        present = None if node.keeps_none or isinstance(data, Columns) else present_rows(data)
        if present is not None:
            _log_none_record(source, lineage_of(positions), present)
        if present is not None and context.stops_at_absent:
            end = next(row for row, other in enumerate([*present, -1]) if row != other)
            last = int(positions[end])
            skips = tuple(skip for skip in skips if skip.record.position < last)
            data, positions = data[:end], positions[:end]
            present, error = None, AbsentElementError()
        block = Block(data, lineage_of(positions, num_flat_maps=context.num_flat_maps))
        counts = filter_counts(positions, present)
        if present is not None:
            block = block.take(np.array(present, dtype=np.int64))
        return BlockResult(block, error, row=len(data), skips=skips, filter_counts=counts)

    return read
