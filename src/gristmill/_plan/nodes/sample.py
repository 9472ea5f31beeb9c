"""The records in the order of a sampler."""

import sys
from collections.abc import Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from gristmill._base.indices import as_indices
from gristmill._data.sampling.record import RecordMetadata
from gristmill._data.sampling.remaining import Remaining
from gristmill._data.sampling.samplers import BlockSampler, Sampler
from gristmill._data.sampling.shard_lengths import strided_length
from gristmill._plan.nodes.base import Node, stable_repr
from gristmill._plan.nodes.source import SourceNode
from gristmill.errors import PlanError, PlanTypeError
from gristmill.options import NoSharding, ShardOptions, as_shard
from gristmill.types import Span


@final
@dataclass(frozen=True, kw_only=True)
class SampleNode(Node):
    """Position p of shard s of n is index p * n + s of the sampler's stream."""

    parent: SourceNode
    sampler: Sampler | BlockSampler
    shard: ShardOptions
    remaining: Remaining | None = None
    """What other shards have left of the stream, if this goes on from there."""

    def __post_init__(self) -> None:
        sampler = self.sampler
        if isinstance(sampler, type) or not isinstance(sampler, Sampler):
            raise PlanTypeError(
                f"`sampler` must have `__getitem__`, got {stable_repr(sampler)}. "
                "Use `IndexSampler(num_records=len(source), ...)`."
            )
        if isinstance(sampler, BlockSampler) and sampler.num_records > self.parent.length():
            raise PlanError(
                f"`sampler` wants {sampler.num_records} records, the source has "
                f"{self.parent.length()}. Pass `num_records=len(data_source)` to the sampler."
            )

    @property
    def label(self) -> str:
        return stable_repr(self.sampler, limit=1000)

    @property
    def seed(self) -> int | None:
        """What each record's randomness comes from, if the sampler has a seed."""
        return self.sampler.seed if isinstance(self.sampler, BlockSampler) else None

    def length(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        if self.remaining is not None:
            return self.remaining.num_positions(self.shard)
        if isinstance(self.sampler, BlockSampler):
            return self.sampler.num_positions(self.shard)
        return strided_length(self.num_indices, self.shard)

    @cached_property
    def num_indices(self) -> int:
        """The length of the sampler's stream, for all shards together."""
        sampler = self.sampler
        return len(sampler) if isinstance(sampler, Sized) else _find_length(sampler)

    def indices(self, positions: Span) -> Span:
        """Give the index of the sampler's stream at each position."""
        shards, first = self.shard.shard_count, self.shard.shard_index
        if isinstance(positions, range):
            step = positions.step * shards
            start = positions.start * shards + first
            indices = range(start, start + len(positions) * step, step)
        else:
            indices = positions * shards + first
        return indices if self.remaining is None else self.remaining.numbers(as_indices(indices))

    def metadata(self, position: int) -> RecordMetadata:
        """Give what the sampler says of one position."""
        index = int(self.indices(range(position, position + 1))[0])
        sampler: Any = self.sampler
        if isinstance(sampler, BlockSampler):
            return RecordMetadata(index, int(sampler.keys(range(index, index + 1))[0]))
        return sampler[index]


def shard_for(sampler: Any, shard_options: ShardOptions | None) -> ShardOptions:
    """Settle which shard to read when both the loader and the sampler may say so."""
    # Grain's samplers, and users' own that follow them, keep theirs under the private name.
    own: Any = getattr(sampler, "shard_options", getattr(sampler, "_shard_options", None))
    if shard_options is not None:
        shard_options = as_shard("shard_options", shard_options)
    if own is None or own.shard_count == 1:
        return shard_options or NoSharding()
    mine = (own.shard_index, own.shard_count)
    if shard_options is None:
        return ShardOptions(*mine, drop_remainder=own.drop_remainder)
    if (shard_options.shard_index, shard_options.shard_count) != mine:
        raise PlanError(
            f"`shard_options` of the loader ({shard_options!r}) and of the sampler ({own!r}) "
            "contradict each other. Leave them out of one of the two."
        )
    return shard_options


def _find_length(sampler: Any) -> int:
    """Search for the first index past the end of a sampler that has no `__len__`."""
    low, high = 0, sys.maxsize
    while low < high:
        middle = (low + high) // 2
        try:
            sampler[middle]
        except IndexError:
            high = middle
        else:
            low = middle + 1
    return low
