"""Trace sources, and the steps that make elements of others one by one or batch them."""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._data.batching.stack import stack
from gristmill._data.sampling.epoch_samplers import EpochSampler
from gristmill._data.sampling.samplers import (
    AllShardsSampler,
    BlockSampler,
    IndexSampler,
    SequentialSampler,
)
from gristmill._data.transforms.stream_operations import rows_of as batch_rows
from gristmill._engine.provenance.origin import RandomDraw, RecordOrigin
from gristmill._engine.provenance.trace_context import TraceMode, Tracer, map_over
from gristmill._engine.provenance.traced import (
    Row,
    Traced,
    TracedSource,
    at_position,
    row_of,
    rows_of,
    value_of,
    zipped,
)
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.combine import ZipNode
from gristmill._plan.nodes.combine_streams import ZipStreamNode
from gristmill._plan.nodes.dataset import AccessNode, CustomNode
from gristmill._plan.nodes.origin_leaf import OriginLeafNode, batch_with_leaf, with_leaf
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
from gristmill._plan.nodes.stream import CountedMapNode
from gristmill._plan.nodes.stream_steps import ScanNode, SlidingWindowNode
from gristmill.types import Element


def without_hint(tracer: Tracer, node: Any, mode: TraceMode) -> Node:
    """Trace the parent of a hint about how to run it, or of a cache, which changes no element."""
    return tracer.trace(node.parent, mode)


def trace_source(tracer: Tracer, node: SourceNode, mode: TraceMode) -> Node:
    """Trace a source that is read as a dataset."""
    length = node.length()

    def in_epoch(index: int, element: Traced) -> Traced:
        return element.with_origins(lambda origin: replace(origin, epoch=index // length))

    source = tracer.trace_source(node, mode)
    return MapWithIndexNode(site=node.site, parent=source, name="epoch", function=in_epoch)


def trace_custom(tracer: Tracer, node: CustomNode, mode: TraceMode) -> Node:
    """Trace a user's own dataset, whose elements are the records."""
    label, number = node.label, tracer.number_of(node.dataset)

    def traced(index: int, element: Element) -> Traced:
        origin = RecordOrigin(
            source=label, source_number=number, index=index, epoch=None, position=None
        )
        return Traced(element, ((origin,),))

    return MapWithIndexNode(site=node.site, parent=node, name="origin", function=traced)


def trace_sample(tracer: Tracer, node: SampleNode, mode: TraceMode) -> Node:
    """Trace sampled records."""
    sampler, seed = node.sampler, node.seed

    def sampled(index: int, element: Traced) -> Traced:
        return element.with_origins(
            lambda origin: replace(
                origin,
                epoch=_epoch_at(sampler, index),
                position=index,
                seed=None if seed is None else seed + index,
            )
        )

    sample = replace(node, parent=tracer.trace_source(node.parent, mode))
    return MapWithIndexNode(site=node.site, parent=sample, name="position", function=sampled)


def origin_at(node: SampleNode, index: int) -> RecordOrigin:
    """Return the origin of the record at an index of the stream of a sampler."""
    sampler = node.sampler
    if isinstance(sampler, BlockSampler):
        key = int(sampler.keys(range(index, index + 1))[0])
    else:
        found: Any = sampler[index]
        key = operator.index(found if isinstance(found, SupportsIndex) else found.record_key)
    source = TracedSource(
        node.parent.source, label=node.parent.label, number=0, needs_values=False, has_absent=False
    )
    origin = rows_of(source[key])[0][0]
    seed = None if node.seed is None else node.seed + index
    return replace(origin, epoch=_epoch_at(sampler, index), position=index, seed=seed)


def _epoch_at(sampler: object, index: int) -> int | None:
    """Return the epoch of an index in the stream of a sampler, if it is known."""
    if isinstance(sampler, IndexSampler):
        return index // sampler.shard_options.shard_count // sampler.epoch_size
    if isinstance(sampler, SequentialSampler | EpochSampler):
        return index // sampler.epoch_size
    if isinstance(sampler, AllShardsSampler):
        return sampler.epoch_of(index)
    return None


def trace_access(tracer: Tracer, node: AccessNode, mode: TraceMode) -> Node:
    """Trace a dataset that is read as a stream."""
    # Whether an element is absent is known only from its value.
    needs_values = mode.needs_values or not node.keeps_none
    parent = tracer.trace(node.parent, TraceMode(needs_values=needs_values, by_index=True))
    return MapWithIndexNode(
        site=node.site,
        parent=replace(node, parent=parent, limits=None),
        name="position",
        function=lambda position, element: at_position(element, position),
    )


def trace_map(tracer: Tracer, node: MapNode, mode: TraceMode) -> Node:
    """Trace a map."""
    parent = tracer.trace(node.parent, mode)
    if not mode.needs_values:
        return parent

    def mapped(element: Traced | None) -> Traced | None:
        value = value_of(element)
        if value is None and node.skips_none:
            return element
        return mode.wrap(node.function(value), element)

    return map_over(node, parent, mapped)


def trace_map_with_index(tracer: Tracer, node: MapWithIndexNode, mode: TraceMode) -> Node:
    """Trace a map with index."""
    parent = tracer.trace(node.parent, mode)
    if not mode.needs_values:
        return parent

    def mapped(index: int, element: Traced | None) -> Traced | None:
        return mode.wrap(node.function(index, value_of(element)), element)

    return replace(node, parent=parent, function=mapped)


def trace_random_map(tracer: Tracer, node: RandomMapNode, mode: TraceMode) -> Node:
    """Trace a map that draws from the generator of a sampled record."""
    parent = tracer.trace(node.parent, mode)
    if not mode.needs_values:
        return parent

    def mapped(element: Traced | None, rng: np.random.Generator) -> Traced | None:
        return mode.wrap(node.function(value_of(element), rng), element)

    return replace(node, parent=parent, function=mapped)


def trace_seeded_map(tracer: Tracer, node: SeededMapNode | CountedMapNode, mode: TraceMode) -> Node:
    """Trace a step that draws from a generator of its own, also if its value is not needed."""
    seed = cast("int", node.seed)

    def drawn(element: Traced | None, rng: np.random.Generator) -> Traced | None:
        state: Any = rng.bit_generator.state
        words: list[int] = state["state"]["counter"].tolist()
        draw = RandomDraw(step=node.label, seed=seed, index=words[3] + words[2] * 2**64)
        traced = Traced(value_of(element), rows_of(element)).with_origins(
            lambda origin: replace(origin, draws=(*origin.draws, draw))
        )
        if not mode.needs_values:
            return traced
        return mode.wrap(node.function(value_of(element), rng), traced)

    return replace(node, parent=tracer.trace(node.parent, mode), function=drawn)


def trace_counted_map(tracer: Tracer, node: CountedMapNode, mode: TraceMode) -> Node:
    """Trace a map with the number of each element."""
    if node.seed is not None:
        return trace_seeded_map(tracer, node, mode)

    def counted(number: int, element: Traced | None) -> Traced | None:
        if not mode.needs_values:
            return element
        return mode.wrap(node.function(number, value_of(element)), element)

    return replace(node, parent=tracer.trace(node.parent, mode), function=counted)


def trace_filter(tracer: Tracer, node: FilterNode, mode: TraceMode) -> Node:
    """Trace a filter."""
    parent = tracer.trace(node.parent, replace(mode, needs_values=True))

    def passes(element: Traced | None) -> bool:
        return node.function(value_of(element))

    return replace(node, parent=parent, function=passes, limits=None)


def trace_flat_map(tracer: Tracer, node: FlatMapNode | FanOutNode, mode: TraceMode) -> Node:
    """Trace a flat map."""

    def split(element: Traced | None) -> Iterator[Traced | None]:
        rows = rows_of(element)
        for number, output in enumerate(node.function(value_of(element))):
            # A row of a batch has the records of that row alone.
            own = rows[number : number + 1] if node.function is batch_rows else rows
            traced = Traced(output, own or rows).with_origins(
                lambda origin, number=number: replace(origin, outputs=(*origin.outputs, number))
            )
            yield mode.wrap(output, traced)

    parent = tracer.trace(node.parent, replace(mode, needs_values=True))
    return replace(node, parent=parent, function=split)


def _leaf_of(rows: Sequence[Row]) -> NDArray[np.int64]:
    """Return the leaf that `provenance=True` adds, for elements of one record each."""
    found = [[cast("int", row[0].position) + 1, *row[0].outputs] for row in rows]
    leaf = np.array(found, dtype=np.int64)
    return leaf[:, 0] if leaf.shape[1:] == (1,) else leaf


def trace_origin_leaf(tracer: Tracer, node: OriginLeafNode, mode: TraceMode) -> Node:
    """Trace the leaf with the position of the record."""
    parent = tracer.trace(node.parent, mode)
    if not mode.needs_values:
        return parent

    def mapped(element: Traced) -> Traced:
        return Traced(with_leaf(element.value, _leaf_of([element.row])[0]), element.rows)

    return map_over(node, parent, mapped)


def trace_batch(tracer: Tracer, node: BatchNode | SlidingWindowNode, mode: TraceMode) -> Node:
    """Trace batches, and windows."""
    collate = stack if node.function is None else node.function

    def batched(elements: Sequence[Traced | None]) -> Traced:
        value = collate(list(map(value_of, elements))) if mode.needs_values else None
        if mode.needs_values and isinstance(node, BatchNode) and node.adds_origins:
            value = batch_with_leaf(value, _leaf_of(list(map(row_of, elements))))
        return Traced(value, tuple(map(row_of, elements)))

    traced = replace(node, parent=tracer.trace(node.parent, mode), function=batched)
    return replace(traced, adds_origins=False) if isinstance(traced, BatchNode) else traced


def trace_zip(tracer: Tracer, node: ZipNode | ZipStreamNode, mode: TraceMode) -> Node:
    """Trace tuples of elements."""
    parents = [tracer.trace(parent, mode) for parent in node.parents]
    return map_over(node, node.with_parents(parents), zipped)


def trace_scan(tracer: Tracer, node: ScanNode, mode: TraceMode) -> Node:
    """Trace a map with a carried value."""

    def scanned(carry: Any, element: Traced | None) -> tuple[Any, Traced | None]:
        carry, output = node.function(carry, value_of(element))
        return carry, mode.wrap(output, element)

    parent = tracer.trace(node.parent, replace(mode, needs_values=True))
    return replace(node, parent=parent, function=scanned)
