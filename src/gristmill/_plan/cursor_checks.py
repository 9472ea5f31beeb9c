"""Check that a cursor from a state has the form of the cursors of a plan, before it is used.

A state comes from a file, which anyone may have written. A cursor that passes can be restored
without a `TypeError` later, and in bounded time and memory. The state of a user's own iterator is
not checked: only that iterator knows its form.
"""

from collections.abc import Sequence
from typing import Any, cast

from gristmill._plan.nodes.base import Node, RecordsNode, Step
from gristmill._plan.nodes.combine_streams import (
    ChainNode,
    InterleaveNode,
    MixStreamNode,
    ZipStreamNode,
)
from gristmill._plan.nodes.hints import HintNode
from gristmill._plan.nodes.packing import ConcatSplitNode, PackNode
from gristmill._plan.nodes.steps import FlatMapNode
from gristmill._plan.nodes.stream import (
    CacheNode,
    CountingNode,
    HoldingNode,
    RecordStreamNode,
    RepeatStreamNode,
    StatefulNode,
    WindowShuffleStreamNode,
)
from gristmill.errors import StateError

_MAX_COUNT = 2**63 - 1


def check_cursor(plan: Node, cursor: object, *, has_own_length: bool = True) -> None:
    """Raise if a cursor cannot be one of a plan.

    Args:
        plan: The plan.
        cursor: The cursor, in which JSON may have replaced tuples by lists.
        has_own_length: Whether the cursor is of this shard. Another one may have more records.

    Raises:
        StateError: If the cursor has another form, or is past the end.
    """
    base, num_flat_maps = plan, 0
    while isinstance(base, Step | HintNode):
        num_flat_maps += isinstance(base, FlatMapNode)
        (base,) = base.parents
    fields = _as_list(cursor)
    if len(fields) != 1 + num_flat_maps or not all(_is_count(output) for output in fields[1:]):
        raise _corrupt(cursor)
    state = fields[0]
    if isinstance(base, RecordsNode):
        # Positions may exceed 64 bits.
        if type(state) is not int or state < 0 or (has_own_length and state > base.length()):
            raise _corrupt(cursor, f", the stream has {base.length()} records")
    elif isinstance(base, StatefulNode):
        _check_state(base, state, has_own_length)


def _check_state(node: StatefulNode, state: object, has_own_length: bool) -> None:
    if isinstance(node, CountingNode | RepeatStreamNode | CacheNode):
        below, count = _as_list(state, 2)
        _check_count(count)
        check_cursor(node.parent, below, has_own_length=has_own_length)
    elif isinstance(node, HoldingNode):
        _check_holding(node, state, has_own_length)
    elif isinstance(node, MixStreamNode):
        _check_mix(node, state, has_own_length)
    elif isinstance(node, ZipStreamNode):
        _check_all(node.inputs, _as_list(state), has_own_length)
    elif isinstance(node, ChainNode):
        _check_chain(node, state, has_own_length)
    elif isinstance(node, InterleaveNode):
        _check_interleave(node, state)
    elif isinstance(node, RecordStreamNode):
        start: object = node.stream.start
        is_number = type(start) is int
        starts = [start] if is_number else _as_list(start)
        numbers = [state] if is_number else _as_list(state, len(starts))
        for first, number in zip(starts, numbers, strict=True):
            if type(first) is int:  # the state of a user's iterable may be anything
                _check_count(number)


def _check_holding(node: HoldingNode, state: object, has_own_length: bool) -> None:
    fields = _as_list(state)
    if len(fields) not in (node.state_size, node.state_size + 2):
        raise _corrupt(state)
    below, *numbers = fields[: node.state_size]
    check_cursor(node.parent, below, has_own_length=has_own_length)
    if isinstance(node, ConcatSplitNode) and numbers[0] is not None:
        for cut in _as_list(numbers[0], len(node.features)):
            start, end = _as_list(cut, 2)
            _check_count(end)
            _check_count(start, at_most=cast("int", end))
    for number in numbers[isinstance(node, ConcatSplitNode) :]:
        _check_count(number)
    if isinstance(node, PackNode):
        _check_count(numbers[0], at_most=node.num_bins)
    for count, end in [fields[node.state_size :]] if len(fields) > node.state_size else []:
        _check_count(count)
        check_cursor(node.parent, end, has_own_length=has_own_length)
        if isinstance(node, WindowShuffleStreamNode):
            _check_count(count, at_most=node.window)
            _check_count(numbers[1], at_most=cast("int", count))


def _check_mix(node: MixStreamNode, state: object, has_own_length: bool) -> None:
    index, below = _as_list(state, 2)
    _check_count(index)
    if isinstance(below, dict):
        by_name = cast("dict[object, object]", below)
        cursors = [by_name.get(name) for name in node.names or ()]
    else:
        cursors = _as_list(below)
    _check_all(node.inputs, cursors, has_own_length)


def _check_all(inputs: Sequence[Node], cursors: list[Any], has_own_length: bool) -> None:
    """Check a cursor for each parent. Restoring reports another number of them."""
    for parent, cursor in zip(inputs, cursors, strict=False):
        if cursor is not None:
            check_cursor(parent, cursor, has_own_length=has_own_length)


def _check_chain(node: ChainNode, state: object, has_own_length: bool) -> None:
    number, cursor = _as_list(state, 2)
    inputs: Sequence[Node] = node.inputs
    if not has_own_length:  # the chains of other shards have other streams
        _check_count(number)
        return
    _check_count(number, at_most=len(inputs))
    if number < len(inputs):
        check_cursor(inputs[cast("int", number)], cursor)


def _check_interleave(node: InterleaveNode, state: object) -> None:
    turn, num_opened, slots = _as_list(state, 3)
    _check_count(num_opened, at_most=node.count)
    _check_count(turn, at_most=max(0, len(_as_list(slots)) - 1))
    for slot in _as_list(slots):
        if slot is not None:
            number, cursor = _as_list(slot, 2)
            _check_count(number, at_most=node.count - 1)
            dataset = node.node_at(number)
            if dataset is not None:
                check_cursor(dataset, cursor)


def _as_list(value: object, length: int | None = None) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise _corrupt(value)
    fields = list(cast("Sequence[Any]", value))
    if length is not None and len(fields) != length:
        raise _corrupt(fields)
    return fields


def _check_count(value: object, *, at_most: int = _MAX_COUNT) -> None:
    if not _is_count(value, at_most):
        raise _corrupt(value)


def _is_count(value: object, at_most: int = _MAX_COUNT) -> bool:
    return type(value) is int and 0 <= value <= at_most


def _corrupt(value: object, limit: str = "") -> StateError:
    return StateError(
        f"The state is corrupt: its position is {value!r:.100}{limit}. Restore an earlier "
        "checkpoint."
    )
