"""Leave records of a plan out, starting at a position.

A stream that holds elements, such as packing bins, computes them again from a position before its
own when it is restored. So each record is left out from the position up to which records were read,
and comes as it did before that.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from gristmill._data.sampling.samplers import BlockSampler
from gristmill._plan.nodes.base import ENDLESS, Node, RecordsNode, Step
from gristmill._plan.nodes.cached import StoredNode
from gristmill._plan.nodes.combine_streams import ChainNode, InterleaveNode
from gristmill._plan.nodes.dataset import AccessNode, CustomNode
from gristmill._plan.nodes.exclude import ExcludeNode, SwitchNode
from gristmill._plan.nodes.hints import HintNode, all_nodes
from gristmill._plan.nodes.sampled import SampleNode, SourceNode
from gristmill._plan.nodes.stream import Continuation, LimitNode, StatefulNode, StreamLeafNode
from gristmill._plan.traverse import bottom_of
from gristmill.errors import PlanError
from gristmill.types import Cursor

ExcludedRecords: TypeAlias = Sequence[tuple[int, tuple[int, ...]]]
"""Numbers of sources, as provenance counts them, each with some of its records in order."""

_BySource: TypeAlias = Mapping[int, tuple[int, ...]]
"""The records of each source, by its id."""


def sources_of(plan: Node) -> list[SourceNode | CustomNode]:
    """Return the sources of a plan, but for those of interleaved datasets."""
    return [node for node in numbered_sources(plan) if isinstance(node, SourceNode | CustomNode)]


def numbered_sources(plan: Node) -> list[SourceNode | CustomNode | InterleaveNode]:
    """Return the source of each number, as provenance counts them; a node for all of its sources.

    The datasets that a node interleaves are sources.
    """
    found: dict[int, SourceNode | CustomNode] = {}
    numbered: list[SourceNode | CustomNode | InterleaveNode] = []
    for node in all_nodes(plan):
        if isinstance(node, InterleaveNode):
            numbered += [node] * node.count
        elif isinstance(node, SourceNode | CustomNode) and _id_of(node) not in found:
            found[_id_of(node)] = node
            numbered.append(node)
    return numbered


def _id_of(node: SourceNode | CustomNode) -> int:
    return id(node.source if isinstance(node, SourceNode) else node.dataset)


def source_with_number(plan: Node, number: int) -> SourceNode | CustomNode | InterleaveNode:
    """Return the source with a number, as `numbered_sources` counts them.

    Raises:
        IndexError: There is none.
        PlanError: A stream in the plan has no sources that are known.
    """
    sources = numbered_sources(plan)
    if 0 <= number < len(sources):
        return sources[number]
    for node in all_nodes(plan):
        if isinstance(node, StreamLeafNode):
            raise _not_below(node)
    raise IndexError(f"There is no source {number}: the pipeline has {len(sources)}.")


def check_record(source: Node, record: int) -> None:
    """Raise an error if a source does not have a record."""
    num_records = source.length()
    if not 0 <= record < num_records:
        raise IndexError(
            f"Record {record} is not in the data: {source.label} has {num_records} records."
        )


def holds_elements(plan: Node) -> bool:
    """Return whether a position of a plan is more than the number of records before it."""
    return isinstance(bottom_of(plan), StatefulNode)


def with_excluded(
    plan: Node, records: ExcludedRecords, cursor: Cursor | None = None, *, original: Node
) -> Node:
    """Return a plan without some records of its sources. The order of the others stays.

    Args:
        plan: The plan.
        records: The records.
        cursor: Where to leave them out from. By default from the start.
        original: The plan that was given, which `plan` is or continues: its sources are numbered.

    Raises:
        IndexError: A source has no such record.
        PlanError: Records cannot be left out below a step.
    """
    by_id: dict[int, tuple[int, ...]] = {}
    for number, some in records:
        source = source_with_number(original, number)
        if isinstance(source, InterleaveNode):
            raise _not_below(source)
        for record in (some[0], some[-1]):
            check_record(source, record)
        by_id[_id_of(source)] = some
    return _exclude(plan, cursor, by_id)


def _exclude(node: Node, cursor: Cursor | None, records: _BySource) -> Node:
    if not any(_id_of(source) in records for source in sources_of(node)):
        return node
    if isinstance(node, RecordsNode):
        return _exclude_records(node, cursor, records)
    if isinstance(node, Step | HintNode):
        return node.with_parents([_exclude(node.parent, cursor, records)])
    state = None if cursor is None else cursor[0]
    if isinstance(node, ChainNode):
        number = 0 if state is None else state[0]
        streams = node.remaining(state)
        done = node.inputs[:number]
        # What earlier shards held was read before: it comes as it would have.
        held = [stream.node for stream in streams[:-1]]
        last = [_exclude(stream.node, stream.cursor, records) for stream in streams[-1:]]
        return node.with_parents([*done, *held, *last])
    cursors = node.read_cursors(state) if isinstance(node, StatefulNode) else None
    if cursors is None:
        raise _not_below(node)
    pairs = zip(node.parents, cursors, strict=True)
    return node.with_parents([_exclude(parent, below, records) for parent, below in pairs])


def _not_below(node: Node) -> PlanError:
    return PlanError(f"Records cannot be excluded below {node.label} ({node.site}).")


def _exclude_records(node: RecordsNode, cursor: Cursor | None, records: _BySource) -> Node:
    _check_any_is_left(node, records)
    # A record of which some outputs of a flat map came was read.
    first = 0 if cursor is None else cursor[0] + any(cursor[1:])
    if isinstance(node, SampleNode):
        if not isinstance(node.sampler, BlockSampler):
            raise PlanError(
                f"Records cannot be excluded from {node.label}. Use `IndexSampler`, "
                "`SubsetSampler` or `WeightedSampler`, or leave them out in your sampler."
            )
        excluded = (first, records[_id_of(node.parent)])
        return replace(node, excluded=(*node.excluded, excluded))
    assert isinstance(node, AccessNode), "there is no other node of records"
    dataset = _exclude_elements(node.latest, records)
    if first:
        dataset = SwitchNode(site=node.site, inputs=(node.parent, dataset), first=first)
    return replace(node, parent=dataset)


def _check_any_is_left(node: RecordsNode, records: _BySource) -> None:
    """Raise if a stream would search for a record without end."""
    is_endless = node.length() >= ENDLESS
    if is_endless and all(
        len(records.get(_id_of(source), ())) == source.length() for source in sources_of(node)
    ):
        raise PlanError(
            f"All records of {node.label} ({node.site}) would be excluded, but the stream has no "
            "end, so that the next element would never come. Exclude fewer records."
        )


def _exclude_elements(node: Node, records: _BySource) -> Node:
    """Return a dataset without some records of its sources."""
    if not any(_id_of(source) in records for source in sources_of(node)):
        return node
    if isinstance(node, SourceNode | CustomNode):
        return ExcludeNode(site=node.site, parent=node, records=records[_id_of(node)])
    if isinstance(node, StoredNode):
        # Above the cache, which contains the elements of all records.
        source = node.parent
        while isinstance(source, Step) and source.is_elementwise:
            source = source.parent
        if isinstance(source, SourceNode):
            return ExcludeNode(site=node.site, parent=node, records=records[_id_of(source)])
    if not node.keeps_absent:
        remedy = (
            "Cache the records themselves, and call the other steps after it."
            if isinstance(node, StoredNode)
            else "Call `to_iter_dataset()` before it."
        )
        raise PlanError(
            f"Records cannot be excluded below {node.label} ({node.site}), whose elements are at "
            f"fixed indices. {remedy}"
        )
    return node.with_parents([_exclude_elements(parent, records) for parent in node.parents])


def held_streams(node: Node, cursor: Cursor) -> Iterator[Continuation]:
    """Yield the streams of elements that are held at a cursor: read, but not yielded yet."""
    if any(cursor[1:]):  # between two outputs of a flat map
        limit = LimitNode(site=node.site, parent=node, count=1)
        yield Continuation(limit, ([list(cursor), 0],))
    base = bottom_of(node)
    if not isinstance(base, StatefulNode):
        return
    state = cursor[0]
    if isinstance(base, ChainNode):
        *held, last = base.remaining(state) or [None]
        yield from filter(None, held)
        if last is not None and last.cursor is not None:
            yield from held_streams(last.node, last.cursor)
        return
    yield from base.held_inputs(state)
    for parent, below in zip(base.parents, base.read_cursors(state) or [], strict=False):
        if below is not None:
            yield from held_streams(parent, below)
