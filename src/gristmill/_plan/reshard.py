"""Make the plan of one shard from the cursors of all shards of an earlier run.

An earlier shard has read some of its records. It may hold some of them, and have yielded a part of
those: of a window, of packing bins, or of a batch that is split.

- All records that no shard has read are distributed over the new shards (`Remaining`).
- What a shard holds is yielded first, by one of the new shards: it continues that shard's stream,
  over no more than the records it holds.

A stream that does not report what it holds, such as a user's own, is continued as a whole by one
of the new shards.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast, final, overload

from gristmill._plan.cursor_checks import check_cursor
from gristmill._plan.nodes.base import Node, RecordsNode, Step
from gristmill._plan.nodes.combine_streams import ChainNode
from gristmill._plan.nodes.hints import HintNode
from gristmill._plan.nodes.steps import BatchNode, FlatMapNode
from gristmill._plan.nodes.stream import (
    Continuation,
    LimitNode,
    StageState,
    StatefulNode,
    StreamLeafNode,
)
from gristmill._plan.sharding import with_shard
from gristmill._plan.traverse import steps_of
from gristmill.errors import StateError
from gristmill.options import ShardOptions
from gristmill.types import Cursor


def reshard_plan(
    plan: Node,
    shard_history: Sequence[Sequence[Cursor]],
    shard: ShardOptions,
    *,
    is_contiguous: bool,
    change: Callable[[Node, int, int], Node],
) -> Node:
    """Return the plan of a shard, after one or more runs on other numbers of shards.

    Args:
        plan: The plan of any shard.
        shard_history: For each earlier run, the cursors at which its shards ended.
        shard: The shard to return the plan of.
        is_contiguous: Whether the shards of the first run were ranges of the records.
        change: Changes the plan of a shard in an earlier run. It is called with the plan, the
            number of the run and that of the shard.
    """
    make = partial(with_shard, plan, is_contiguous=is_contiguous)
    for number, cursors in enumerate(shard_history):
        shards = _ShardPlans(len(cursors), partial(_make_changed, make, change, number))
        for index, cursor in enumerate(cursors):
            if not index or cursor is not cursors[index - 1]:  # often all are the same
                check_cursor(shards[0], cursor, has_own_length=False)
        make = partial(reshard, shards, cursors)
    return make(shard)


def _make_changed(
    make: Callable[[ShardOptions], Node],
    change: Callable[[Node, int, int], Node],
    number: int,
    shard: ShardOptions,
) -> Node:
    return change(make(shard), number, shard.shard_index)


def reshard(shards: Sequence[Node], cursors: Sequence[Cursor | None], shard: ShardOptions) -> Node:
    """Return the plan of a shard of what earlier shards left.

    Args:
        shards: The plans of all earlier shards.
        cursors: The cursor of each of them. `None` is the start.
        shard: The new shard.
    """
    segment: list[Step | HintNode] = []
    bottoms = shards
    while isinstance(node := bottoms[0], Step | HintNode):
        segment.append(node)
        bottoms = _parents(bottoms, 0)
    flat_map = _topmost_flat_map(shards[0])
    resumed_at: list[Cursor] = []
    plan: Node
    is_within = any(cursor is not None and any(cursor[1:]) for cursor in cursors)
    depth = len(segment) if flat_map is None else segment.index(flat_map)
    if is_within and any(isinstance(one, BatchNode) for one in segment[depth:]):
        plan = _reshard_split_batches(shards, cursors, shard, depth)
        segment = segment[:depth]
    elif isinstance(node, RecordsNode):
        earlier = [()] * len(shards) if flat_map is None else [_resumed_at(one) for one in shards]
        leaves = cast("Sequence[RecordsNode]", bottoms)
        plan, resumed_at = _reshard_records(leaves, cursors, earlier, shard)
    elif is_within:
        raise _within_outputs()
    else:
        states = [None if cursor is None else cursor[0] for cursor in cursors]
        plan = _reshard_stream(cast("Sequence[StatefulNode]", bottoms), states, shard)
    for step in reversed(segment):
        plan = step.with_parents([plan])
        if step is flat_map:
            plan = replace(plan, resumed_at=tuple(resumed_at))
    return plan


def _reshard_split_batches(
    shards: Sequence[Node], cursors: Sequence[Cursor | None], shard: ShardOptions, depth: int
) -> ChainNode:
    """Return a chain: the rest of batches that were split in part, then the outputs of new batches.

    A new shard forms batches of other records, so it cannot continue within one of its own.

    Args:
        shards: The plans of all earlier shards.
        cursors: The cursor of each of them, within the outputs of a flat map of batches or not.
        shard: The new shard.
        depth: How many nodes of a plan are above the flat map.
    """
    tops = shards
    for _ in range(depth):
        tops = _parents(tops, 0)
    batches = bottoms = _parents(tops, 0)
    while isinstance(bottoms[0], Step | HintNode) and bottoms[0].is_dense:
        bottoms = _parents(bottoms, 0)
    if not isinstance(bottoms[0], RecordsNode):  # a batch ends where a filter below it decides
        raise _within_outputs()
    num_records = batches[0].records_per_position
    held: list[Continuation] = []
    after: list[Cursor | None] = []
    for number, cursor in enumerate(cursors):
        if cursor is None or not any(cursor[1:]):
            after.append(cursor)
            continue
        position, num_outputs = cursor
        batch = LimitNode(site=tops[number].site, parent=batches[number], count=1)
        outputs = tops[number].with_parents([batch])
        held.append(Continuation(outputs, ([(position,), 0], num_outputs)))
        after.append((min(position + num_records, bottoms[number].length()),))
    below = reshard(batches, [cursor and cursor[:1] for cursor in after], shard)
    fresh = Continuation(tops[0].with_parents([below]), None)
    return _chain(tops[0].site, [*held[shard.shard_index :: shard.shard_count], fresh])


def _within_outputs() -> StateError:
    return StateError(
        "A shard is between two outputs of a flat map, above a step that holds elements, where no "
        "other shard can continue. Restore on the same number of shards, or save the state after "
        "the last output of an element."
    )


def _reshard_records(
    leaves: Sequence[RecordsNode],
    cursors: Sequence[Cursor | None],
    earlier: Sequence[Sequence[Cursor]],
    shard: ShardOptions,
) -> tuple[Node, list[Cursor]]:
    """Distribute the remaining records, and return also the cursors within some of them.

    Args:
        leaves: The records of each earlier shard.
        cursors: The cursor of each of them.
        earlier: The cursors within records at which each of them had resumed.
        shard: The new shard.
    """
    starts = [(0,) if cursor is None else cursor for cursor in cursors]
    positions = [start[0] for start in starts]
    if any(type(position) is not int or position < 0 for position in positions):
        raise StateError(
            f"The state is corrupt: its shards are at {positions!r:.100}. Restore an earlier "
            "checkpoint."
        )
    node, remaining = leaves[0].resharded(leaves, positions, shard)
    resumed_at: list[Cursor] = []
    for owner, (start, resumed) in enumerate(zip(starts, earlier, strict=True)):
        within = [cursor for cursor in resumed if tuple(cursor) > tuple(start)]
        if any(start[1:]) and start[0] not in [cursor[0] for cursor in within]:
            within.append(start)
        for position, *outputs in within:
            index = remaining.index_of(owner, position)
            new_position, new_owner = divmod(index, shard.shard_count)
            if new_owner == shard.shard_index:
                resumed_at.append((new_position, *outputs))
    return node, resumed_at


def _topmost_flat_map(plan: Node) -> FlatMapNode | None:
    flat_maps = [step for step in steps_of(plan) if isinstance(step, FlatMapNode)]
    return flat_maps[-1] if flat_maps else None


def _resumed_at(plan: Node) -> Sequence[Cursor]:
    flat_map = _topmost_flat_map(plan)
    return () if flat_map is None else flat_map.resumed_at


def _reshard_stream(
    shards: Sequence[StatefulNode], states: Sequence[StageState], shard: ShardOptions
) -> ChainNode:
    """Return a chain: what some of the earlier shards hold, then what remains."""
    node, held = shards[0], list[Continuation]()
    if isinstance(node, ChainNode):
        chains = cast("Sequence[ChainNode]", shards)
        last, held = _last_streams(chains, states)
        if not last:  # all streams were continued as a whole, by other shards
            return ChainNode(site=node.site, inputs=(), starts=())
        if not isinstance(last[0].node, StatefulNode):  # elements that a stage above collects
            remaining = reshard(
                [stream.node for stream in last], [stream.cursor for stream in last], shard
            )
            streams = [*held[shard.shard_index :: shard.shard_count], Continuation(remaining, None)]
            return _chain(node.site, streams)
        shards = [cast("StatefulNode", stream.node) for stream in last]
        states = [None if stream.cursor is None else stream.cursor[0] for stream in last]
        node = shards[0]
    fresh: list[Continuation] = []
    if isinstance(node, StreamLeafNode) and max(len(shards), shard.shard_count) > 1:
        raise StateError(
            f"`{node.label}`, added at {node.site}, cannot be distributed over another number of "
            "shards: only a process that reads all of it can continue it. Restore on "
            f"{len(shards)} shard{'s' * (len(shards) > 1)}."
        )
    if node.parent_cursors(states[0]) is None:
        held += [
            Continuation(one, None if state is None else (state,))
            for one, state in zip(shards, states, strict=True)
        ]
    else:
        held += [
            some
            for one, state in zip(shards, states, strict=True)
            if (some := one.held(state)) is not None
        ]
        below = _reshard_parents(shards, states, shard)
        fresh = [Continuation(node.resharded(shards, states, below, shard), None)]
    return _chain(node.site, held[shard.shard_index :: shard.shard_count] + fresh)


def _chain(site: str, streams: Sequence[Continuation]) -> ChainNode:
    return ChainNode(
        site=site,
        inputs=tuple(stream.node for stream in streams),
        starts=tuple(stream.cursor for stream in streams),
    )


def _last_streams(
    chains: Sequence[ChainNode], states: Sequence[StageState]
) -> tuple[list[Continuation], list[Continuation]]:
    """Return the last streams of chains, and what comes before in the chains."""
    last: list[Continuation] = []
    held: list[Continuation] = []
    for chain, state in zip(chains, states, strict=True):
        streams = chain.remaining(state)
        held += streams[:-1]
        last += streams[-1:]
    return last, held


def _reshard_parents(
    shards: Sequence[StatefulNode], states: Sequence[StageState], shard: ShardOptions
) -> list[Node]:
    cursors = [shards[0].parent_cursors(state) or [] for state in states]
    return [
        reshard(_parents(shards, number), [some[number] for some in cursors], shard)
        for number in range(len(shards[0].parents))
    ]


def _parents(shards: Sequence[Node], number: int) -> Sequence[Node]:
    """Return one of the parents of the node of each shard."""
    return _ShardPlans(len(shards), lambda one: shards[one.shard_index].parents[number])


@final
class _ShardPlans(Sequence[Node]):
    """The plans of all shards of a run. Each is made on request: mostly one is enough."""

    def __init__(self, count: int, make: Callable[[ShardOptions], Node]) -> None:
        self._count = count
        self._make = functools.cache(make)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Node: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Node]: ...

    def __getitem__(self, number: int | slice) -> Node | Sequence[Node]:
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(self._count))]
        if number >= self._count:
            raise IndexError(number)
        return self._make(ShardOptions(number, self._count))
