"""Accept the shard options of users, and those of Grain."""

from typing import Any

from gristmill._base.checks import as_kind
from gristmill._base.grain.classes import is_from_grain
from gristmill.options import NoSharding, ShardByJaxProcess, ShardOptions

EMPTY_SHARD_COUNT = 2**40
"""The number of shards of a process that loads nothing: no data has as many records."""


def as_shard(name: str, value: object) -> ShardOptions:
    """Return `value` if it is a `ShardOptions`, and convert it if it is Grain's.

    Args:
        name: The name of the argument, for the error message.
        value: The value to check.

    Raises:
        PlanTypeError: If `value` is neither.

    >>> as_shard("shard_options", ShardOptions(0, 2)).shard_count
    2
    """
    if is_from_grain(value, "ShardOptions"):
        theirs: Any = value
        if is_from_grain(value, "NoSharding"):
            return NoSharding()
        if is_from_grain(value, "ShardByJaxProcess"):
            return ShardByJaxProcess(theirs.drop_remainder)
        return ShardOptions(theirs.shard_index, theirs.shard_count, theirs.drop_remainder)
    remedy = "Pass `NoSharding()`, `ShardByJaxProcess()` or `ShardOptions(index, count)`."
    return as_kind(name, value, ShardOptions, remedy=remedy)
