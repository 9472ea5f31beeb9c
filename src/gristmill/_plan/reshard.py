"""From the cursors of all shards of a run to the plan of one shard of another run.

A shard has taken some of its records, and may hold some of which part was given: the rest of a
window, of packed bins, of a batch that is cut anew. Then

    all records that no shard has taken      are dealt to the new shards (`Remaining`)
    what a shard holds                       is given first, by one of the new shards: its stream
                                             is run on, over no more than the records it holds

Streams of which nobody but themselves knows what they hold (the user's own, zipped ones, ...) go
to a new shard as a whole.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

from gristmill._data.sampling.remaining import Remaining
from gristmill._data.sampling.samplers import AllShardsSampler, IndexSampler
from gristmill._plan.nodes.base import Node, Step
from gristmill._plan.nodes.batch import BatchNode
from gristmill._plan.nodes.combine_streams import MixStreamNode
from gristmill._plan.nodes.dataset import AccessNode, SeedNode
from gristmill._plan.nodes.filter import FilterNode
from gristmill._plan.nodes.flat_map import FlatMapNode
from gristmill._plan.nodes.map import MapNode
from gristmill._plan.nodes.packing import ConcatSplitNode, PackNode
from gristmill._plan.nodes.rearrange import SliceNode
from gristmill._plan.nodes.reshard import ChainNode, RemainingNode, ReshardedNode
from gristmill._plan.nodes.sample import SampleNode
from gristmill._plan.nodes.stream import CountedMapNode, HintNode, StatefulNode
from gristmill._plan.nodes.stream_steps import LimitNode, RebatchNode, WindowShuffleStreamNode
from gristmill._plan.sharding import replace_below, shard_slice, with_shard
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
    """Give a plan for a shard, after others have taken part of it, and perhaps others of that."""
    make = partial(with_shard, plan, is_contiguous=is_contiguous)
    for cursors in shard_history:
        make = partial(reshard, _ShardPlans(len(cursors), make), cursors)
    return make(shard)


@final
class _ShardPlans(Sequence[Any]):
    """The plans of all shards, made when they are looked at: mostly one of them is enough."""

    def __init__(self, count: int, make: Callable[[ShardOptions], Any]) -> None:
        self._count = count
        self._make = functools.cache(make)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if number >= self._count:
            raise IndexError(number)
        return self._make(ShardOptions(number, self._count))

    @property
    def parents(self) -> "_ShardPlans":
        """What each of them stands on."""
        return _ShardPlans(self._count, lambda shard: self[shard.shard_index].parent)


def reshard(nodes: Sequence[Node], cursors: Sequence[Cursor | None], shard: ShardOptions) -> Node:
    """Give the plan of a shard that goes on with what others left.

    `nodes` are the plans of the others, `cursors` where they stand; `None` is the beginning.
    """
    steps: list[Any] = []
    bottoms = _ShardPlans(len(nodes), lambda one: nodes[one.shard_index])
    while isinstance(bottoms[0], Step | BatchNode | HintNode):
        steps.append(bottoms[0])
        bottoms = bottoms.parents
    given: list[Cursor] = []
    if isinstance(bottoms[0], StatefulNode):
        if any(cursor is not None and any(cursor[1:]) for cursor in cursors):
            raise StateError(
                "A shard stands within an element that a flat map splits, above a step that holds "
                "elements back: nobody else can go on there. Restore on as many shards, or take "
                "the state at the end of an element."
            )
        states = [None if cursor is None else cursor[0] for cursor in cursors]
        plan: Any = _reshard_stream(bottoms, states, shard)
    else:
        has_pieces = any(isinstance(step, FlatMapNode) for step in steps)
        before = [_given_before(node) for node in nodes] if has_pieces else [()] * len(nodes)
        plan, given = _reshard_records(bottoms, cursors, before, shard)
    for step in reversed(steps):
        plan = replace(step, parent=plan)
    return _with_given(plan, tuple(given))


def _reshard_records(
    leaves: Sequence[Any],
    cursors: Sequence[Cursor | None],
    before: Sequence[Sequence[Cursor]],
    shard: ShardOptions,
) -> tuple[Node, list[Cursor]]:
    """Deal records that are left; and give the cursors within those of which pieces were given."""
    positions = [0 if cursor is None else cursor[0] for cursor in cursors]
    if any(type(position) is not int or position < 0 for position in positions):
        raise StateError(
            f"The state is corrupt: shards stand at {positions!r:.100}. Restore an earlier "
            "checkpoint."
        )
    dealt = (_reshard_sample if isinstance(leaves[0], SampleNode) else _reshard_access)(
        leaves, positions, shard
    )
    remaining, given = _remaining_of(dealt), list[Cursor]()
    if remaining is None:
        return dealt, given
    for owner, (cursor, earlier) in enumerate(zip(cursors, before, strict=True)):
        at = (0,) if cursor is None else cursor
        within = [other for other in earlier if tuple(other) > tuple(at)]
        if any(at[1:]) and at[0] not in [other[0] for other in within]:
            within.append(at)
        for position, *pieces in within:
            turn, number = divmod(remaining.index_of(owner, position), shard.shard_count)
            if number == shard.shard_index:
                given.append((turn, *pieces))
    return dealt, given


def _reshard_sample(
    leaves: Sequence[SampleNode], positions: Sequence[int], shard: ShardOptions
) -> SampleNode:
    leaf = leaves[0]
    sampler, remaining = leaf.sampler, leaf.remaining
    if remaining is not None:
        remaining = remaining.after(positions)
    elif isinstance(sampler, IndexSampler) and sampler.shard_options.shard_count > 1:
        every = AllShardsSampler(sampler, len(leaves))
        sampler, remaining = every, Remaining(every.lengths).after(positions, by_stream=True)
    else:
        remaining = Remaining((leaf.num_indices,)).after(positions)
    shard = replace(shard, drop_remainder=leaf.shard.drop_remainder)
    return replace(leaf, sampler=sampler, remaining=remaining, shard=shard)


def _reshard_access(
    leaves: Sequence[AccessNode], positions: Sequence[int], shard: ShardOptions
) -> AccessNode:
    leaf = leaves[0]
    parent = leaf.parent
    place = _resharded_node(parent)
    if place is not None:
        remaining = place.remaining.after(positions)
        dealt = replace_below(
            parent, place, lambda old: replace(old, remaining=remaining, shard=shard)
        )
        return replace(leaf, parent=dealt)
    cut = shard_slice(parent)
    if cut is None:
        raise StateError(
            f"{parent.label} is no shard of anything, so nobody else can go on with what is left "
            "of it. Cut each source with `ds[shard::num_shards]`, also for one shard."
        )
    if _is_plain_above(parent, cut):
        remaining = Remaining((cut.stop,)).after(positions)
        node = RemainingNode(site=cut.site, parent=cut.parent, remaining=remaining, shard=shard)
        return replace(leaf, parent=replace_below(parent, cut, lambda _: node))
    # By place in the old shards: what they shuffled and drew by themselves stays as it was.
    remaining = Remaining(tuple(other.length() for other in leaves)).after(
        positions, by_stream=True
    )
    own = tuple(other.parent for other in leaves)
    node = ReshardedNode(site=cut.site, parents=own, remaining=remaining, shard=shard)
    return replace(leaf, parent=node)


def _resharded_node(dataset: Node) -> RemainingNode | ReshardedNode | None:
    node: Any = dataset
    while node is not None and not isinstance(node, RemainingNode | ReshardedNode):
        node = getattr(node, "parent", None)
    return node


def _remaining_of(leaf: Any) -> Remaining | None:
    if isinstance(leaf, SampleNode):
        return leaf.remaining
    place = _resharded_node(leaf.parent)
    return None if place is None else place.remaining


def _is_plain_above(dataset: Node, cut: SliceNode) -> bool:
    """Tell whether an element above a slice is the same wherever it stands in it."""
    node: Any = dataset
    while node is not cut:
        if not isinstance(node, MapNode | FilterNode | SeedNode):
            return False
        node = node.parent
    return True


def _given_before(node: Any) -> Sequence[Cursor]:
    while isinstance(node, Step | BatchNode | HintNode):
        if isinstance(node, FlatMapNode):
            return node.given
        node = node.parent
    return ()


def _with_given(node: Any, given: tuple[Cursor, ...]) -> Node:
    """Tell the topmost flat map which pieces were given before."""
    if isinstance(node, FlatMapNode):
        return replace(node, given=given)
    if isinstance(node, Step | BatchNode | HintNode):
        return replace(node, parent=_with_given(node.parent, given))
    return node


def _reshard_stream(
    nodes: Sequence[Any], states: Sequence[Any], shard: ShardOptions
) -> StatefulNode:
    """Give a chain: what some of the others hold, then what is dealt."""
    chain, held = nodes[0], list[_Held]()
    if isinstance(chain, ChainNode):
        nodes, states, held = _unchained(nodes, states)
    if not nodes:  # streams that went to other shards as a whole
        return ChainNode(site=chain.site, parents=(), starts=())
    node = nodes[0]
    match node:
        case MixStreamNode():
            fresh = _reshard_mix(nodes, states, shard)
        case CountedMapNode():
            below = _reshard_parent(nodes, states, shard)
            numbers = [node.first if state is None else state[1] for state in states]
            fresh = replace(node, parents=(below,), first=max(numbers))
        case LimitNode():
            below = _reshard_parent(nodes, states, shard)
            left = sum(
                one.count - (0 if state is None else state[1])
                for one, state in zip(nodes, states, strict=True)
            )
            count = len(range(shard.shard_index, left, shard.shard_count))
            fresh = replace(node, parents=(below,), count=count)
        case WindowShuffleStreamNode() | PackNode() | ConcatSplitNode() | RebatchNode():
            holding = [_held_by(one, state) for one, state in zip(nodes, states, strict=True)]
            held += [some for some, _ in holding if some is not None]
            below = reshard(
                [one.parents[0] for one in nodes], [cursor for _, cursor in holding], shard
            )
            fresh = replace(node, parents=(below,))
        case _:
            fresh = None
            held += [
                _Held(one, None if state is None else (state,))
                for one, state in zip(nodes, states, strict=True)
            ]
    mine = held[shard.shard_index :: shard.shard_count]
    if fresh is not None:
        mine.append(_Held(fresh, None))
    return ChainNode(
        site=node.site,
        parents=tuple(some.node for some in mine),
        starts=tuple(some.cursor for some in mine),
    )


@final
@dataclass(frozen=True)
class _Held:
    """A stream to run on from a cursor."""

    node: Node
    cursor: Cursor | None


def _held_by(node: Any, state: Any) -> tuple[_Held | None, Cursor | None]:
    """Give what a stream holds, if anything, and where it goes on below after that.

    States tell it alike: first the cursor below, last how many elements from there on are held,
    and the cursor after them.
    """
    if state is None:
        return None, None
    num_own = 2 if isinstance(node, RebatchNode) else 3
    below, *own = state[:num_own]
    if len(state) == num_own:
        return None, tuple(below)
    count, end = state[num_own:]
    limit = LimitNode(site=node.site, parents=node.parents, count=count)
    whole = replace(node, parents=(limit,))
    if isinstance(whole, RebatchNode):
        whole = replace(whole, drop_remainder=False)  # of the stream that is, not of a part of it
    return _Held(whole, ([([below, 0],), *own],)), tuple(end)


def _unchained(
    nodes: Sequence[ChainNode], states: Sequence[Any]
) -> tuple[list[Any], list[Any], list[_Held]]:
    """Give the last streams of chains, their states, and all that comes before in the chains."""
    held: list[_Held] = []
    last: list[Any] = []
    cursors: list[Any] = []
    for node, state in zip(nodes, states, strict=True):
        number, cursor = (0, None) if state is None else state
        starts = [*node.starts]
        if number < len(starts) and cursor is not None:
            starts[number] = tuple(cursor)
        left = [*zip(node.parents, starts, strict=True)][number:]
        held += [_Held(parent, start) for parent, start in left[:-1]]
        if left:
            last.append(left[-1][0])
            cursors.append(None if left[-1][1] is None else left[-1][1][0])
    return last, cursors, held


def _reshard_mix(nodes: Sequence[Any], states: Sequence[Any], shard: ShardOptions) -> MixStreamNode:
    node = nodes[0]
    parents: list[Node] = []
    for number in range(len(node.parents)):
        key = number if node.names is None else node.names[number]
        cursors = [None if state is None else _at(state[1], key) for state in states]
        parents.append(reshard([one.parents[number] for one in nodes], cursors, shard))
    return replace(node, parents=tuple(parents))


def _at(below: Any, key: Any) -> Cursor | None:
    cursor: Any = below.get(key) if hasattr(below, "get") else below[key]
    return None if cursor is None else tuple(cursor)


def _reshard_parent(nodes: Sequence[Any], states: Sequence[Any], shard: ShardOptions) -> Node:
    cursors = [None if state is None else tuple(state[0]) for state in states]
    return reshard([one.parents[0] for one in nodes], cursors, shard)
