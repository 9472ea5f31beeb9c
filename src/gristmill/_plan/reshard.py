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
from gristmill._plan.nodes.steps import FlatMapNode
from gristmill._plan.nodes.stream import Continuation, StageState, StatefulNode, StreamLeafNode
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
) -> Node:
    """Return the plan of a shard, after one or more runs on other numbers of shards.

    Args:
        plan: The plan of any shard.
        shard_history: For each earlier run, the cursors at which its shards ended.
        shard: The shard to return the plan of.
        is_contiguous: Whether the shards of the first run were ranges of the records.
    """
    make = partial(with_shard, plan, is_contiguous=is_contiguous)
    for cursors in shard_history:
        shards = _ShardPlans(len(cursors), make)
        for number, cursor in enumerate(cursors):
            if not number or cursor is not cursors[number - 1]:  # often all are the same
                check_cursor(shards[0], cursor, has_own_length=False)
        make = partial(reshard, shards, cursors)
    return make(shard)


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
    if isinstance(node, RecordsNode):
        earlier = [()] * len(shards) if flat_map is None else [_resumed_at(one) for one in shards]
        leaves = cast("Sequence[RecordsNode]", bottoms)
        plan, resumed_at = _reshard_records(leaves, cursors, earlier, shard)
    elif any(cursor is not None and any(cursor[1:]) for cursor in cursors):
        raise StateError(
            "A shard is between two outputs of a flat map, above a step that holds elements, "
            "where no other shard can continue. Restore on the same number of shards, or save the "
            "state after the last output of an element."
        )
    else:
        states = [None if cursor is None else cursor[0] for cursor in cursors]
        plan = _reshard_stream(cast("Sequence[StatefulNode]", bottoms), states, shard)
    for step in reversed(segment):
        plan = step.with_parents([plan])
        if step is flat_map:
            plan = replace(plan, resumed_at=tuple(resumed_at))
    return plan


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
        shards, states, held = _last_streams(chains, states)
        if not shards:  # all streams were continued as a whole, by other shards
            return ChainNode(site=node.site, inputs=(), starts=())
        node = shards[0]
    fresh: list[Continuation] = []
    if isinstance(node, StreamLeafNode) and len(shards) > 1:
        raise StateError(
            f"`{node.label}`, added at {node.site}, cannot be distributed over another number of "
            "shards: this process cannot read what the others read of it. Restore on "
            f"{len(shards)} shards."
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
    streams = held[shard.shard_index :: shard.shard_count] + fresh
    return ChainNode(
        site=node.site,
        inputs=tuple(stream.node for stream in streams),
        starts=tuple(stream.cursor for stream in streams),
    )


def _last_streams(
    chains: Sequence[ChainNode], states: Sequence[StageState]
) -> tuple[list[StatefulNode], list[StageState], list[Continuation]]:
    """Return the last streams of chains, their states, and what comes before in the chains."""
    last: list[StatefulNode] = []
    last_states: list[StageState] = []
    held: list[Continuation] = []
    for chain, state in zip(chains, states, strict=True):
        streams = chain.remaining(state)
        held += streams[:-1]
        for stream in streams[-1:]:
            last.append(cast("StatefulNode", stream.node))
            last_states.append(None if stream.cursor is None else stream.cursor[0])
    return last, last_states, held


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
