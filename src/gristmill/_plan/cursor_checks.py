"""Check that a cursor from a state has the form of the cursors of a plan, before it is used.

A state comes from a file, which anyone may have written. A cursor that passes can be restored
without a `TypeError` later, and in bounded time and memory. The state of a user's own iterator is
not checked, and neither is what a scan carries: only the user's code knows its form.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from gristmill._base.trees.json_values import decode_value
from gristmill._plan.nodes.base import Node, RecordsNode, Step
from gristmill._plan.nodes.buckets import BucketStreamNode, HeldElementsNode
from gristmill._plan.nodes.combine_streams import (
    ChainNode,
    ConcatStreamsNode,
    InterleaveNode,
    MixStreamNode,
    ZipStreamNode,
)
from gristmill._plan.nodes.hints import HintNode
from gristmill._plan.nodes.packing import ConcatSplitNode, PackNode
from gristmill._plan.nodes.record_operations import OperationsNode, PackBatchesNode
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
from gristmill._plan.nodes.stream_steps import ScanNode, SlidingWindowNode
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
    for kind, check in STATE_CHECKS:
        if isinstance(node, kind):
            check(node, state, has_own_length)
            return


def _check_counting(
    node: CountingNode | RepeatStreamNode | CacheNode | OperationsNode,
    state: object,
    has_own_length: bool,
) -> None:
    below, count = _as_list(state, 2)
    _check_count(count)
    check_cursor(node.parent, below, has_own_length=has_own_length)


def _check_pack_batches(node: PackBatchesNode, state: object, has_own_length: bool) -> None:
    (below,) = _as_list(state, 1)
    check_cursor(node.parent, below, has_own_length=has_own_length)


def _check_zip(node: ZipStreamNode, state: object, has_own_length: bool) -> None:
    _check_all(node.inputs, _as_list(state), has_own_length)


def _check_concatenate(node: ConcatStreamsNode, state: object, has_own_length: bool) -> None:
    number, cursors = _as_list(state, 2)
    _check_count(number, at_most=len(node.inputs) - 1)
    _check_all(node.inputs, _as_list(cursors, cast("int", number) + 1), has_own_length)


def _check_window(node: SlidingWindowNode, state: object, has_own_length: bool) -> None:
    below, num_to_skip, num_used = _as_list(state, 3)
    _check_count(num_to_skip, at_most=node.stride)
    _check_count(num_used, at_most=node.size)
    check_cursor(node.parent, below, has_own_length=has_own_length)


def _check_scan(node: ScanNode, state: object, has_own_length: bool) -> None:
    below, carried = _as_list(state, 2)
    decode_value(carried)
    check_cursor(node.parent, below, has_own_length=has_own_length)


def _check_held(node: HeldElementsNode, state: object, has_own_length: bool) -> None:
    run, done = _as_list(state, 2)
    if not has_own_length:  # other shards hold other elements
        _check_count(run)
        _check_count(done)
        return
    _check_count(run, at_most=len(node.runs))
    counts = [*(count for count, _ in node.runs), 0]
    _check_count(done, at_most=counts[cast("int", run)])


def _check_records(node: RecordStreamNode, state: object, has_own_length: bool) -> None:
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
    if isinstance(node, PackNode):  # the next row of some bins, and of all rows
        row, counter = numbers
        _check_count(row, at_most=min(node.num_bins, cast("int", counter)))
    for count, end in [fields[node.state_size :]] if len(fields) > node.state_size else []:
        _check_count(count)
        check_cursor(node.parent, end, has_own_length=has_own_length)
        if isinstance(node, WindowShuffleStreamNode):
            _check_count(count, at_most=node.window)
            _check_count(numbers[1], at_most=cast("int", count))


def _check_buckets(node: BucketStreamNode, state: object, has_own_length: bool) -> None:
    below, number, runs = _as_list(state, 3)
    _check_count(number)
    check_cursor(node.parent, below, has_own_length=has_own_length)
    num_left, end = sum(node.buckets.sizes), 0
    for run in _as_list(runs):
        first, count, cursor = _as_list(run, 3)
        _check_count(count, at_most=num_left)
        _check_count(first, at_most=number - count)
        if first < end or not count:
            raise _corrupt(state)
        num_left, end = num_left - count, first + count
        check_cursor(node.parent, cursor, has_own_length=has_own_length)


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


def _check_interleave(node: InterleaveNode, state: object, has_own_length: bool) -> None:
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


STATE_CHECKS: list[tuple[type[StatefulNode], Callable[[Any, object, bool], None]]] = [
    (CountingNode, _check_counting),
    (RepeatStreamNode, _check_counting),
    (CacheNode, _check_counting),
    (OperationsNode, _check_counting),
    (PackBatchesNode, _check_pack_batches),
    (HoldingNode, _check_holding),
    (BucketStreamNode, _check_buckets),
    (HeldElementsNode, _check_held),
    (SlidingWindowNode, _check_window),
    (ScanNode, _check_scan),
    (MixStreamNode, _check_mix),
    (ZipStreamNode, _check_zip),
    (ConcatStreamsNode, _check_concatenate),
    (ChainNode, _check_chain),
    (InterleaveNode, _check_interleave),
    (RecordStreamNode, _check_records),
]
"""How to check the state of each kind of stateful node."""
