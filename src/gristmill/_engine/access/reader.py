"""The interpreter of random access: opens the reader of any node, by one table of node classes."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from gristmill._base.memory.aligned_alloc import aligned_empty
from gristmill._engine.access.batch import batch_reader
from gristmill._engine.access.bucket import bucket_reader
from gristmill._engine.access.combine import (
    merge_reader,
    reindex_reader,
    shuffle_reader,
    zip_reader,
)
from gristmill._engine.access.context import Allocate, ReadContext, Reader, RunStep
from gristmill._engine.access.cut import Cut
from gristmill._engine.access.exclude import exclude_reader
from gristmill._engine.access.filter import (
    filter_step,
    may_hold_absent,
    run_on_present,
    source_of_records,
    to_iter_reader,
)
from gristmill._engine.access.flat_map import flat_map_step, padded_flat_map_reader
from gristmill._engine.access.map import (
    map_step,
    map_with_index_step,
    random_map_step,
    seeded_map_step,
)
from gristmill._engine.access.nested_clock import NestedClock, base_step_names, size_of
from gristmill._engine.access.origin_leaf import origin_leaf_step
from gristmill._engine.access.records import custom_reader, sample_reader, source_reader
from gristmill._engine.access.skip_errors import (
    leaves_out_bad_records,
    leaving_out,
    skipping_errors,
)
from gristmill._engine.access.stored import stored_reader
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.error_notes import add_context
from gristmill._engine.blocks.lineage import lineage_of
from gristmill._engine.tuning.measure import is_mostly_waiting
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy
from gristmill._metrics.profiler import named
from gristmill._metrics.step_time import begin_step, end_step
from gristmill._plan.nodes.base import Node, Step
from gristmill._plan.nodes.buckets import BucketNode
from gristmill._plan.nodes.cached import StoredNode
from gristmill._plan.nodes.combine import (
    ChooseNode,
    ConcatenateNode,
    MixNode,
    ReshardedNode,
    SelectNode,
    ZipNode,
)
from gristmill._plan.nodes.dataset import AccessNode, CustomNode
from gristmill._plan.nodes.exclude import ExcludeNode, SwitchNode
from gristmill._plan.nodes.hints import HintNode, SeedNode
from gristmill._plan.nodes.origin_leaf import OriginLeafNode
from gristmill._plan.nodes.rearrange import (
    PickNode,
    RearrangeNode,
    RemainingNode,
    RepeatNode,
    ShuffleNode,
    SliceNode,
    SplitNode,
    WeightedNode,
    WindowShuffleNode,
)
from gristmill._plan.nodes.sampled import SampleNode, SourceNode
from gristmill._plan.nodes.steps import (
    BatchNode,
    FanOutNode,
    FilterNode,
    FlatMapNode,
    MapNode,
    MapWithIndexNode,
    RandomMapNode,
    SeededMapNode,
)
from gristmill.types import Element, Span

OpenReader: TypeAlias = Callable[..., Reader]
"""Called with a node, its context, and the readers of its parents."""

OpenStep: TypeAlias = Callable[..., RunStep]
"""Called with a step and its context."""


def open_cut(
    cut: Cut, allocate: Allocate = aligned_empty, *, policy: TuningPolicy = DEFAULT_POLICY
) -> Reader:
    """Return the reader of the base of a cut, by position; its blocks have rows.

    Args:
        cut: The plan, and where it is cut.
        allocate: Allocates the arrays of the batches that are returned.
        policy: The tuning policy.
    """
    context = ReadContext(
        by_index=False,
        allocate=allocate,
        steps_above=cut.steps[cut.num_read :],
        num_flat_maps=cut.num_flat_maps,
        skips_errors=cut.skips_errors,
        stops_at_absent=cut.stops_at_absent,
    )
    return _with_rows(open_reader(cut.base, context), policy)


def open_dataset(node: Node) -> Reader:
    """Return the reader of a dataset, by index."""
    return open_reader(node, ReadContext(by_index=True))


def read_element(read: Reader, index: int) -> Element:
    """Return the element at an index of a dataset, or raise its error."""
    result = read(range(index, index + 1))
    if result.error is not None:
        raise result.error
    return result.block.rows()[0]


def open_reader(node: Node, context: ReadContext) -> Reader:
    """Return the reader of a node and of all nodes below it."""
    if context.by_index and not node.length():
        return partial(_read_nothing, node)
    open_node = READERS.get(type(node))
    if open_node is None:
        raise TypeError(f"{node.label} has no random access")
    if isinstance(node, SampleNode):  # reads its source by key, to report errors by position
        return _timed(open_node(node, context))
    below = _context_below(node, context)
    read = open_node(node, context, *(open_reader(parent, below) for parent in node.parents))
    if below.clock is None:
        return read
    if isinstance(node, AccessNode):
        return below.clock.measure(read)
    return below.clock.measure_step(node, read)


def open_step(node: Step, context: ReadContext) -> RunStep:
    """Return the function that runs a step on a block."""
    run = named(node.label, STEPS[type(node)](node, context))
    if context.by_index:
        has_absent = context.skips_errors or may_hold_absent(node.parent)
    else:
        has_absent = isinstance(node, MapNode) and node.skips_none
    if not has_absent:
        return run
    source = None if context.skips_errors else source_of_records(node.parent)
    return partial(run_on_present, run, source=source)


def _context_below(node: Node, context: ReadContext) -> ReadContext:
    """Return the context of the parents of a node."""
    moves_elements = isinstance(node, RearrangeNode | ChooseNode | HintNode | AccessNode)
    allocate = context.allocate if moves_elements else np.empty
    if context.by_index or isinstance(node, AccessNode):
        is_top = isinstance(node, AccessNode)
        return ReadContext(
            by_index=True,
            allocate=allocate,
            clock=NestedClock(base_step_names(node)) if is_top else context.clock,
            skips_errors=context.skips_errors,
        )
    assert isinstance(node, Step), "a stream consists of steps"
    return replace(context, allocate=allocate, steps_above=(node, *context.steps_above))


def _step_reader(node: Step, context: ReadContext, read_parent: Reader) -> Reader:
    run = open_step(node, context)
    if leaves_out_bad_records(node, context):
        if context.by_index:
            run = leaving_out(node, run)
        else:
            run = skipping_errors(node, run, lambda block: block.lineage)
    is_timed = not context.by_index
    return lambda span: read_parent(span).then(run, is_timed=is_timed)


def _same_reader(node: HintNode, context: ReadContext, read_parent: Reader) -> Reader:
    return read_parent


def _samples(node: SampleNode, context: ReadContext) -> Reader:
    read = sample_reader(node, context)
    if context.skips_errors:
        lineage_of_records = partial(lineage_of, num_flat_maps=context.num_flat_maps)
        read = skipping_errors(node, read, lineage_of_records)
    return read


def _timed(read: Reader) -> Reader:
    def read_timed(span: Span) -> BlockResult:
        begin = begin_step(None)
        result = read(span)
        step, reading = end_step(begin)
        if len(result.block):
            step = step._replace(num_records=len(result.block), num_bytes=size_of(result.block))
        return result.with_step_times((step,), reading)

    return read_timed


def _with_rows(read: Reader, policy: TuningPolicy) -> Reader:
    """Make rows of columns here, where it is timed and may run in parallel, not in the consumer."""

    def read_rows(span: Span) -> BlockResult:
        result = read(span)
        times, reading, block = result.step_times, result.reading, result.block
        if not isinstance(block.data, list):
            begin = begin_step(reading)
            block = block.with_rows(block.rows())
            step, reading = end_step(begin)
            times = (*times[:-1], times[-1].plus(step))
        elapsed_s = waited_s = 0.0
        for step_s, _, step_waited_s, interpreter_wait_s, *_ in times:
            elapsed_s += step_s
            waited_s += step_waited_s + interpreter_wait_s
        return BlockResult(
            block=block,
            error=result.error,
            row=result.row,
            skips=result.skips,
            step_times=times,
            filter_counts=result.filter_counts,
            has_waited=is_mostly_waiting(elapsed_s, waited_s, policy),
            reading=reading,
        )

    return read_rows


def _read_nothing(node: Node, indices: Span) -> BlockResult:
    if not len(indices):
        return BlockResult(Block.empty())
    error = IndexError(f"index {indices[0]} of an empty dataset")
    return BlockResult(Block.empty(), add_context(error, node, lineage_of(indices), 0))


STEPS: dict[type[Node], OpenStep] = {
    MapNode: map_step,
    MapWithIndexNode: map_with_index_step,
    RandomMapNode: random_map_step,
    SeededMapNode: seeded_map_step,
    FilterNode: filter_step,
    FlatMapNode: flat_map_step,
    OriginLeafNode: origin_leaf_step,
}
"""How to open each step that runs on a block: in a reader, or in a stage above the cut."""

READERS: dict[type[Node], OpenReader] = {
    SampleNode: _samples,
    AccessNode: to_iter_reader,
    SourceNode: source_reader,
    CustomNode: custom_reader,
    SeedNode: _same_reader,
    StoredNode: stored_reader,
    ShuffleNode: shuffle_reader,
    SplitNode: shuffle_reader,
    WeightedNode: shuffle_reader,
    WindowShuffleNode: reindex_reader,
    SliceNode: reindex_reader,
    PickNode: reindex_reader,
    RepeatNode: reindex_reader,
    RemainingNode: reindex_reader,
    MixNode: merge_reader,
    SelectNode: merge_reader,
    ConcatenateNode: merge_reader,
    ReshardedNode: merge_reader,
    SwitchNode: merge_reader,
    ExcludeNode: exclude_reader,
    ZipNode: zip_reader,
    FanOutNode: padded_flat_map_reader,
    BatchNode: batch_reader,
    BucketNode: bucket_reader,
    **dict.fromkeys(STEPS, _step_reader),
}
"""How to open the reader of each node with random access."""
