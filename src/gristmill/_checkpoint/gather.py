"""One state from the states of all shards, for another number of shards."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, cast

from gristmill._checkpoint.excluded_records import Exclusion
from gristmill._checkpoint.state import State, decode_state, encode_state, parse_body
from gristmill._data.sampling.shard_options import EMPTY_SHARD_COUNT
from gristmill.errors import StateError
from gristmill.types import JsonObject

StateT = TypeVar("StateT", bound=bytes | JsonObject)
"""The state of a `DataLoader` is bytes, that of a dataset a dict."""


def gather_states(states: Sequence[StateT]) -> StateT:
    """Combine the states of all shards into one that any number of shards can restore.

    Each shard of the new run continues with its share of the remaining records, so that every
    record is read exactly once.

    Args:
        states: The states of all shards, in any order, as returned by `get_state`.

    Returns:
        A state of the same type as the given ones, for `set_state` of every new shard.

    Raises:
        StateError: If states are missing, or do not belong to the shards of one run.

    >>> import gristmill as grain
    >>> def shard(index, count):
    ...     sampler = grain.samplers.IndexSampler(9, num_epochs=1)
    ...     options = grain.sharding.ShardOptions(index, count)
    ...     return iter(grain.DataLoader(
    ...         data_source=range(9), sampler=sampler, shard_options=options))
    >>> old = [shard(0, 3), shard(1, 3), shard(2, 3)]
    >>> [next(iterator) for iterator in old]
    [0, 1, 2]
    >>> state = gather_states([iterator.get_state() for iterator in old])
    >>> new = [shard(0, 2), shard(1, 2)]
    >>> for iterator in new: iterator.set_state(state)
    >>> [list(iterator) for iterator in new]
    [[3, 5, 7], [4, 6, 8]]
    """
    if not states:
        raise StateError("There is no state to gather. Pass the states of all shards.")
    bodies = [parse_body(state) for state in states]
    names = ("source", "order", "steps", "epoch")
    description = {name: bodies[0][name] for name in names if name in bodies[0]}
    decoded = _one_of_each_shard([decode_state(state, description) for state in states])
    shards = [one.shard for one in decoded]
    if None in shards:
        if any(body != bodies[0] for body in bodies):
            raise StateError(
                "Each state is of all shards, but the states differ: the shards did not advance in "
                "step. Restore one of them, or an earlier checkpoint."
            )
        return states[0]
    if len(shards) > 1 and set(shards) == {(0, 1)}:
        raise StateError(
            "None of the states belongs to a shard: each pipeline reads everything, or is sharded "
            "by your own code. Restore one of the states, or each pipeline from its own."
        )
    counts = {count for _, count in cast("list[tuple[int, int]]", shards)}
    wanted = [(index, len(decoded)) for index in range(len(decoded))]
    if len(counts) > 1 or sorted(cast("list[tuple[int, int]]", shards)) != wanted:
        found = ", ".join(f"{index} of {count}" for index, count in sorted(filter(None, shards)))
        raise StateError(f"The states are of the shards {found}. Pass one of each shard.")
    first = decoded[0]
    if any(
        (one.shard_history, one.is_contiguous) != (first.shard_history, first.is_contiguous)
        for one in decoded
    ):
        raise StateError("The states are not of one run: their shards resumed from other records.")
    whats = [
        [(some.records, some.num_reshards, some.cursors is None) for some in one.exclusions]
        for one in decoded
    ]
    if any(what != whats[0] for what in whats):
        raise StateError(
            "The states exclude different records. Call `exclude` with the same records on every "
            "shard."
        )
    ordered = sorted(decoded, key=lambda one: one.shard or (0, 0))
    gathered = State(
        positions=tuple(one.positions[0] for one in ordered),
        shard=None,
        shard_history=first.shard_history,
        is_contiguous=first.is_contiguous,
        exclusions=tuple(
            _gather_exclusion([one.exclusions[number] for one in ordered], len(first.shard_history))
            for number in range(len(first.exclusions))
        ),
    )
    made = encode_state(gathered, description)
    return cast(StateT, made if isinstance(states[0], dict) else json.dumps(made).encode())


def _gather_exclusion(shards: Sequence[Exclusion], num_reshards: int) -> Exclusion:
    """Return an exclusion with the positions of all shards, given those of each."""
    first = shards[0]
    if first.cursors is None or first.num_reshards < num_reshards:
        return first
    return replace(first, cursors=tuple(one.cursors[0] for one in shards if one.cursors))


def _one_of_each_shard(decoded: list[State]) -> list[State]:
    """Leave out the states of processes that load nothing, and copies of those that load the same.

    With `ShardByMesh`, several processes have the same shard. Copies that differ are kept, and
    refused.
    """
    loading = [one for one in decoded if one.shard is None or one.shard[1] != EMPTY_SHARD_COUNT]
    kept: list[State] = []
    for one in loading or decoded:
        if one.shard in (None, (0, 1)) or one not in kept:
            kept.append(one)
    return kept
