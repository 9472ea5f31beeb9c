"""Grain's own samplers as ours, which answer for many indices at once."""

from typing import Any, cast

from gristmill._check import is_grains
from gristmill.options import as_shard
from gristmill.order._sampler import IndexSampler, SequentialSampler


def own_sampler(sampler: Any) -> Any:
    """Give the sampler of ours that gives the same stream; any other sampler as it is.

    >>> own_sampler(range(3))
    range(0, 3)
    """
    if not type(sampler).__module__.startswith("grain."):  # one that derives from it is another
        return sampler
    told = cast(
        "dict[str, Any]", vars(sampler)
    )  # they have no public names for what they were made with
    try:
        if is_grains(sampler, "IndexSampler"):
            return IndexSampler(
                num_records=told["_num_records"],
                shard_options=as_shard("shard_options", told["_shard_options"]),
                shuffle=told["_shuffle"],
                num_epochs=told["_num_epochs"],
                seed=told["_seed"],
            )
        if is_grains(sampler, "SequentialSampler"):
            return SequentialSampler(
                num_records=told["_num_records"],
                shard_options=as_shard("shard_options", told["_shard_options"]),
                seed=told["_seed"],
            )
    except KeyError:  # another version of Grain: it is asked index by index, like any other
        pass
    return sampler
