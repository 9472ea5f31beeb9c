"""Readers of the nodes that move elements without changing them: reorder, merge and zip."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from gristmill._base.indices import as_indices
from gristmill._engine.access.context import ReadContext, Reader, result_at
from gristmill._engine.access.records import as_range, in_windows
from gristmill._engine.access.skip_errors import absent_because_bad
from gristmill._engine.blocks.block import BadRecord, Block, BlockResult
from gristmill._engine.blocks.error_notes import add_context
from gristmill._engine.blocks.lineage import lineage_of
from gristmill._plan.nodes.combine import ChooseNode, MixNode, ZipNode
from gristmill._plan.nodes.rearrange import RearrangeNode
from gristmill.types import Element, Indices, Span

Locate: TypeAlias = Callable[[Span], tuple[Indices, Indices]]
"""Returns the number of the parent of each element, and the element's index there."""


def reindex_reader(node: RearrangeNode, context: ReadContext, read_parent: Reader) -> Reader:
    """Return the reader of a node that maps its indices to those of its parent."""

    def read(indices: Span) -> BlockResult:
        run = node.run_in_parent(indices) if isinstance(indices, range) else None
        result = read_parent(node.to_parent(as_indices(indices)) if run is None else run)
        return result_at(indices, result.block.data, result.error, result.bad_records)

    return read


def shuffle_reader(node: RearrangeNode, context: ReadContext, read_parent: Reader) -> Reader:
    """Return the reader of a random order, which looks ahead on consecutive reads."""
    find = in_windows(lambda indices: node.to_parent(as_indices(indices)), epoch=node.length())

    def read(indices: Span) -> BlockResult:
        consecutive = as_range(indices)
        if consecutive is None:
            result = read_parent(node.to_parent(as_indices(indices)))
        else:
            result = read_parent(find(consecutive))
        return result_at(indices, result.block.data, result.error, result.bad_records)

    return read


def merge_reader(node: ChooseNode, context: ReadContext, *read_parents: Reader) -> Reader:
    """Return the reader of a node each of whose elements is an element of one of its parents."""
    locate = _locate_ahead(node) if isinstance(node, MixNode) else _locate(node)

    def read(indices: Span) -> BlockResult:
        try:
            numbers, within = locate(indices)
        except Exception as error:
            return BlockResult(Block.empty(), add_context(error, node, lineage_of(indices), 0))
        first = int(numbers[0]) if len(numbers) else 0
        if (numbers == first).all():
            result = read_parents[first](within)
            return result_at(indices, result.block.data, result.error, result.bad_records)
        return _read_from_several(read_parents, numbers, within, indices)

    return read


def _locate(node: ChooseNode) -> Locate:
    return lambda indices: node.locate(as_indices(indices))


def _locate_ahead(node: MixNode) -> Locate:
    """Return a function that looks ahead on consecutive reads."""
    find = in_windows(
        lambda indices: np.column_stack(node.locate_run(indices)), epoch=node.length()
    )

    def locate(indices: Span) -> tuple[Indices, Indices]:
        consecutive = as_range(indices)
        if consecutive is None:
            return node.locate(as_indices(indices))
        located = as_indices(find(consecutive))
        return as_indices(located[:, 0]), located[:, 1]

    return locate


def _read_from_several(
    read_parents: tuple[Reader, ...], numbers: Indices, within: Indices, indices: Span
) -> BlockResult:
    """Read each parent once, and put the elements in order, up to the first error."""
    # A stable sort of small integers is a radix sort: a quarter of the time for many parents.
    order = np.argsort(numbers.astype(np.min_scalar_type(len(read_parents))), kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(read_parents)))
    grouped = within[order]
    rows: list[Element] = []
    bad_records: list[BadRecord] = []
    end, error = len(indices), None
    for number in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
        stop = int(ends[number])
        span = grouped[len(rows) : stop]
        consecutive = as_range(span)  # as those of a mix are, which is read faster
        result = read_parents[number](span if consecutive is None else consecutive)
        bad_records += [bad.at(int(order[len(rows) + bad.row])) for bad in result.bad_records]
        rows += result.block.rows()
        if result.error is not None and order[len(rows)] < end:
            end, error = int(order[len(rows)]), result.error
        rows += [None] * (stop - len(rows))
    placed = np.empty(len(order), dtype=object)
    placed[order] = np.fromiter(rows, dtype=object, count=len(rows))
    return result_at(indices, placed[:end].tolist(), error, bad_records)


def zip_reader(node: ZipNode, context: ReadContext, *read_parents: Reader) -> Reader:
    """Return the reader of tuples of the parents' elements at the same index."""

    def read(indices: Span) -> BlockResult:
        results = [read_parent(indices) for read_parent in read_parents]
        end = min(len(result.block) for result in results)
        error = next((result.error for result in results if len(result.block) == end), None)
        parts = [result.block.rows()[:end] for result in results]
        rows: list[Element] = list(zip(*parts, strict=True))
        bad_records = [bad for result in results for bad in result.bad_records]
        for part, result in zip(parts, results, strict=True):
            for row in absent_because_bad(part, result.bad_records):
                rows[row] = None  # a tuple without the bad record would be another element
        return result_at(indices, rows, error, bad_records)

    return read
