"""Conversion of Grain's samplers to gristmill's, which handle many indices at once."""

from typing import Any, cast

from gristmill._base.grain.classes import is_from_grain
from gristmill._data.sampling.samplers import IndexSampler, SequentialSampler
from gristmill._data.sampling.shard_options import as_shard


def own_sampler(sampler: Any) -> Any:
    """Convert a sampler of Grain; return any other sampler unchanged.

    >>> own_sampler(range(3))
    range(0, 3)
    """
    if not type(sampler).__module__.startswith("grain."):  # a subclass may behave differently
        return sampler
    fields = cast("dict[str, Any]", vars(sampler))  # their arguments have no public names
    try:
        if is_from_grain(sampler, "IndexSampler"):
            return IndexSampler(
                num_records=fields["_num_records"],
                shard_options=as_shard("shard_options", fields["_shard_options"]),
                shuffle=fields["_shuffle"],
                num_epochs=fields["_num_epochs"],
                seed=fields["_seed"],
            )
        if is_from_grain(sampler, "SequentialSampler"):
            return SequentialSampler(
                num_records=fields["_num_records"],
                shard_options=as_shard("shard_options", fields["_shard_options"]),
                seed=fields["_seed"],
            )
    except KeyError:  # another version of Grain: read it index by index, like any other sampler
        pass
    return sampler
