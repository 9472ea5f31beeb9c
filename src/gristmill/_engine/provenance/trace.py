"""Trace a plan: the same stream, in which each element carries the origins of its records.

A traced plan has the nodes of the plan, with functions that pass the origins on. So it has the same
cursors and states, and the engine runs it like any other. Records are read and transformed only as
far as a step above depends on their values, such as a filter.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, final

from gristmill._engine.provenance.trace_context import TraceMode, not_traced
from gristmill._engine.provenance.trace_rows import (
    trace_buckets,
    trace_concat_split,
    trace_pack,
    trace_pack_batches,
    trace_rebatch,
)
from gristmill._engine.provenance.trace_steps import (
    trace_access,
    trace_batch,
    trace_counted_map,
    trace_custom,
    trace_filter,
    trace_flat_map,
    trace_map,
    trace_map_with_index,
    trace_origin_leaf,
    trace_random_map,
    trace_sample,
    trace_scan,
    trace_seeded_map,
    trace_source,
    trace_zip,
    without_hint,
)
from gristmill._engine.provenance.traced import TracedSource
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.buckets import BucketNode, BucketStreamNode, HeldElementsNode
from gristmill._plan.nodes.cached import StoredNode
from gristmill._plan.nodes.combine import ChooseNode, ZipNode
from gristmill._plan.nodes.combine_streams import (
    ChainNode,
    ConcatStreamsNode,
    InterleaveNode,
    MixStreamNode,
    ZipStreamNode,
)
from gristmill._plan.nodes.dataset import AccessNode, CustomNode
from gristmill._plan.nodes.exclude import ExcludeNode
from gristmill._plan.nodes.hints import (
    OptionsNode,
    PrefetchNode,
    ReadNode,
    SeedNode,
    WorkersNode,
)
from gristmill._plan.nodes.origin_leaf import OriginLeafNode
from gristmill._plan.nodes.packing import ConcatSplitNode, PackNode
from gristmill._plan.nodes.rearrange import RearrangeNode
from gristmill._plan.nodes.record_operations import PackBatchesNode
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
from gristmill._plan.nodes.stream import (
    CacheNode,
    CountedMapNode,
    LimitNode,
    RebatchNode,
    RepeatStreamNode,
    WindowShuffleStreamNode,
)
from gristmill._plan.nodes.stream_steps import ScanNode, SkipNode, SlidingWindowNode


@final
class PlanTracer:
    """Traces the nodes of one plan, and numbers its sources."""

    def __init__(self, first_number: int = 0) -> None:
        self._next_number = first_number
        self._numbers: dict[int, int] = {}

    def trace(self, node: Node, mode: TraceMode) -> Node:
        """Return a node and all below it, with traced elements.

        Raises:
            ProvenanceError: There is a node whose elements cannot be traced.
        """
        if isinstance(node, PASSED_ON):
            return node.with_parents([self.trace(parent, mode) for parent in node.parents])
        trace = TRACES.get(type(node))
        if trace is None:
            raise not_traced(node)
        return trace(self, node, mode)

    def trace_source(self, node: SourceNode, mode: TraceMode) -> SourceNode:
        """Return a source whose records are traced."""
        source = TracedSource(
            node.source,
            label=node.label,
            number=self.number_of(node.source),
            needs_values=mode.needs_values,
            has_absent=mode.by_index,
        )
        return SourceNode(site=node.site, source=source)

    def number_of(self, source: object, count: int = 1) -> int:
        """Return the number of a source in the plan, in the order in which they appear.

        Args:
            source: The source, or what makes several.
            count: How many sources it stands for, which are numbered from there on.
        """
        if id(source) not in self._numbers:
            self._numbers[id(source)] = self._next_number
            self._next_number += count
        return self._numbers[id(source)]


PASSED_ON = (
    *(RearrangeNode, ChooseNode, SeedNode, OptionsNode, LimitNode, SkipNode, RepeatStreamNode),
    *(WindowShuffleStreamNode, CacheNode, MixStreamNode, ConcatStreamsNode, ChainNode),
    HeldElementsNode,
    ExcludeNode,
)
"""Nodes that only choose and rearrange elements."""


def _trace_interleave(tracer: PlanTracer, node: InterleaveNode, mode: TraceMode) -> Node:
    first = tracer.number_of(node.node_at, node.count)

    def node_at(number: int) -> Node | None:
        found = node.node_at(number)
        return None if found is None else PlanTracer(first + number).trace(found, mode)

    return replace(node, node_at=node_at)


Trace: TypeAlias = Callable[[PlanTracer, Any, TraceMode], Node]

TRACES: dict[type[Node], Trace] = {
    SourceNode: trace_source,
    CustomNode: trace_custom,
    SampleNode: trace_sample,
    AccessNode: trace_access,
    ReadNode: without_hint,
    StoredNode: without_hint,
    WorkersNode: without_hint,
    PrefetchNode: without_hint,
    MapNode: trace_map,
    MapWithIndexNode: trace_map_with_index,
    RandomMapNode: trace_random_map,
    SeededMapNode: trace_seeded_map,
    CountedMapNode: trace_counted_map,
    OriginLeafNode: trace_origin_leaf,
    FilterNode: trace_filter,
    FlatMapNode: trace_flat_map,
    FanOutNode: trace_flat_map,
    BatchNode: trace_batch,
    SlidingWindowNode: trace_batch,
    ZipNode: trace_zip,
    ZipStreamNode: trace_zip,
    ScanNode: trace_scan,
    PackNode: trace_pack,
    ConcatSplitNode: trace_concat_split,
    PackBatchesNode: trace_pack_batches,
    RebatchNode: trace_rebatch,
    BucketNode: trace_buckets,
    BucketStreamNode: trace_buckets,
    InterleaveNode: _trace_interleave,
}
"""How to trace each node that makes elements of others."""
