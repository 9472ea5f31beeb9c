"""Batches: read those at any positions, or stack the elements of a block in order."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from gristmill._base.indices import as_indices, join_epochs, scale, split_epochs
from gristmill._base.memory.aligned_alloc import aligned_empty
from gristmill._base.trees.columns import Columns, RaggedError
from gristmill._base.trees.tree import map_leaves, with_sorted_keys
from gristmill._data.batching.pad import PadBatch
from gristmill._data.batching.stack import stack
from gristmill._engine.access.context import Allocate, ReadContext, Reader, result_at
from gristmill._engine.access.filter import present_rows
from gristmill._engine.access.origin_leaf import origin_leaf
from gristmill._engine.access.skip_errors import absent_because_bad
from gristmill._engine.blocks.block import (
    Block,
    BlockResult,
    SourceEndedError,
    in_rows,
    join_results,
)
from gristmill._engine.blocks.error_notes import add_context
from gristmill._engine.blocks.lineage import lineage_of
from gristmill._metrics.profiler import named
from gristmill._plan.nodes.origin_leaf import batch_with_leaf
from gristmill._plan.nodes.steps import BatchNode
from gristmill.errors import BatchError, PlanError
from gristmill.types import Element, Span, Tree


def batch_reader(node: BatchNode, context: ReadContext, read_parent: Reader) -> Reader:
    """Return the reader of batches of a dense parent, which it reads once for all of them.

    A parent whose columns hold an object for each item, such as tensors that are still to be
    stacked, is read once for each batch instead. They are freed before the next batch is read: more
    of them at a time would make the garbage collector run, and blocks would have to be shorter.
    """
    make = named(node.label, make_batches)
    allocate = context.allocate
    holds_lists = False

    def read(span: Span) -> BlockResult:
        return read_each(span) if holds_lists and len(span) > 1 else read_at_once(span)

    def read_each(span: Span) -> BlockResult:
        elements, ends = _elements_of(node, span)
        batches: list[Element] = []
        for first, end in pairwise((0, *ends)):
            batch = _try_to_make(node, read_parent(elements[first:end]), allocate)
            if batch is None:  # read it once more, to describe the error
                read_batches = result_at(span[: len(batches)], batches, None)
                return join_results([read_batches, read_at_once(span[len(batches) :])])
            batches.append(batch)
        return result_at(span, batches, None)

    def read_at_once(span: Span) -> BlockResult:
        nonlocal holds_lists
        elements, ends = _elements_of(node, span)
        result = read_parent(elements)
        data = result.block.data
        holds_lists = context.by_index and isinstance(data, Columns) and data.holds_lists
        if result.error is not None:  # it leaves one batch incomplete
            ends = _ends_before_error(node, result, ends)
            result = result.with_block(result.block[: ends[-1] if ends else 0])
        indices = span if context.by_index else None

        def make_of(block: Block, ends: list[int]) -> BlockResult:
            return make(node, block, ends, allocate, indices)

        if result.bad_records:
            return _make_without_bad(result, ends, make_of)
        return result.then(lambda block: make_of(block, ends), is_timed=not context.by_index)

    return read


def _try_to_make(node: BatchNode, result: BlockResult, allocate: Allocate) -> Element | None:
    """Return the batch of all elements, or `None` if one is missing or the batch raises."""
    try:
        if result.error or result.bad_records:
            return None
        return _make_batch(node, result.block.data, allocate)
    except Exception:
        return None


def _ends_before_error(node: BatchNode, result: BlockResult, ends: list[int]) -> list[int]:
    """Return the row after the last element of each batch that is made before an error."""
    count = len(result.block)
    ends = ends[: bisect_right(ends, count)]
    has_ended = isinstance(result.error, SourceEndedError)
    if has_ended and not node.drop_remainder and count > (ends[-1] if ends else 0):
        ends.append(count)
    return ends


def _elements_of(node: BatchNode, span: Span) -> tuple[Span, list[int]]:
    """Return the parent's positions of all elements of some batches, and the end of each batch."""
    total, size, length = node.parent.length(), node.size, max(1, node.length())
    if isinstance(span, range) and span.step == 1:
        epoch, number = divmod(span.start, length)
        stop = number + len(span)
        if stop <= length:  # most ranges lie within one epoch
            first = epoch * total
            elements = range(first + number * size, first + min(stop * size, total))
            return elements, batch_ends(size, len(elements))[: len(span)]
    epochs, numbers = split_epochs(as_indices(span), length)
    starts = numbers * size if length * size < 2**63 else scale(numbers, size)
    sizes = as_indices(np.minimum(total - starts, size))
    ends = np.cumsum(sizes)
    firsts = join_epochs(epochs, starts, total, bound=max(total, length * size))
    offsets = np.repeat(firsts - (ends - sizes), sizes)
    return np.arange(len(offsets)) + offsets, ends.tolist()


def _make_without_bad(
    result: BlockResult, ends: list[int], make: Callable[[Block, list[int]], BlockResult]
) -> BlockResult:
    """Make batches of a dataset without its bad records, which are then listed by batch.

    Args:
        result: The elements.
        ends: The row after the last element of each batch.
        make: Makes batches of a block that end at some rows.
    """
    count = ends[-1] if ends else 0
    found = in_rows(result.bad_records, count)
    is_kept = np.full(count, fill_value=True)
    is_kept[absent_because_bad(result.block.data, found)] = False
    num_kept = np.cumsum(is_kept)
    kept = result.block[:count].take(np.flatnonzero(is_kept))
    made = make(kept, [int(num_kept[end - 1]) for end in ends])
    made.error = made.error or result.error
    bad_records = (bad.at(bisect_right(ends, bad.row)) for bad in found)
    made.bad_records = in_rows(bad_records, len(made.block))
    return made


def batch_ends(size: int, count: int) -> list[int]:
    """Return the row after the last element of each batch of `count` elements.

    >>> batch_ends(3, 8)
    [3, 6, 8]
    """
    return [*range(size, count, size), count]


def make_batches(
    node: BatchNode,
    block: Block,
    ends: Sequence[int],
    allocate: Allocate = aligned_empty,
    indices: Span | None = None,
) -> BlockResult:
    """Make batches of the elements of a block.

    Args:
        node: The step.
        block: The elements of all batches.
        ends: The row after the last element of each batch.
        allocate: Allocates the arrays of the batches.
        indices: The indices of the batches if they are read by index: then errors name the batch,
            and neither an element nor a batch may be absent.
    """
    data = block.data if node.function is None else block.rows()
    origins = origin_leaf(node, block.lineage) if node.adds_origins else None
    batches: list[Element] = []
    error: BaseException | None = None
    row = 0
    for first, end in pairwise((0, *ends)):
        elements = data[first:end]
        if first == end:  # all of its records are bad
            batches.append(None)
            continue
        try:
            batch = _make_batch(node, elements, allocate)
            if origins is not None:
                batch = batch_with_leaf(batch, origins[first:end])
            if batch is None and indices is not None:
                raise PlanError("The batch is None, which stands for an absent element.")
        except Exception as raised:
            row = end - 1
            if indices is None:
                failed = first + (raised.row if isinstance(raised, BatchError) else 0)
                error = add_context(raised, node, block.lineage, failed)
            else:
                cause = _absent_error(elements) or raised
                error = add_context(cause, node, lineage_of(indices), len(batches))
            break
        batches.append(batch)
    if indices is not None:
        return result_at(indices, batches, error)
    ends = ends[: len(batches)]
    generators = block.generators
    if generators is not None:  # a batch continues with the generator of its last element
        generators = [generators[end - 1] for end in ends]
    return BlockResult(Block(batches, block.lineage.batched(ends), generators), error, row=row)


def _make_batch(node: BatchNode, elements: list[Element] | Columns, allocate: Allocate) -> Element:
    if isinstance(elements, Columns):
        return _gather(elements, allocate)
    if isinstance(node.function, PadBatch):  # it fills the memory of a slot without a copy
        return node.function.make(elements, allocate=allocate)
    return stack(elements, allocate) if node.function is None else node.function(elements)


def _gather(columns: Columns, allocate: Allocate) -> Tree:
    """Return columns as a batch; arrays of objects, such as strings, are stacked as rows are."""
    try:
        batch = with_sorted_keys(columns.gather(allocate))
        if not columns.holds_objects:
            return batch
        return map_leaves(
            lambda array: stack(array.tolist(), allocate) if array.dtype.hasobject else array,
            batch,
        )
    except (BatchError, RaggedError):
        return stack(columns.rows(), allocate)  # its error names the leaf and the record


def _absent_error(elements: list[Element] | Columns) -> PlanError | None:
    """Return the error for a batch that cannot be made because an element is absent."""
    if isinstance(elements, Columns) or present_rows(elements) is None:
        return None
    return PlanError(
        "An element of the batch is absent (None). Call `to_iter_dataset()` before `batch`: it "
        "leaves absent elements out."
    )
