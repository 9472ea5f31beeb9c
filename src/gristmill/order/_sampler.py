"""Samplers: which record stands at each index of the stream.

                        index   0  1  2  3  4  5  6  7  8  9
    SequentialSampler, 2 shards s0 s1 s0 s1 s0 s1 s0 s1 s0 s1     shards stride over the records
    IndexSampler, 2 shards      s0 s1 s0 s1 s0 s1 s0 s1 s0 s1     shards stride over the stream,
                    record      0  5  1  6  2  7  3  8  4  9      each owns a piece of the records

A sampler of ours answers for many indices at once (`keys`); a user's for one (`__getitem__`).
"""

import operator
from collections.abc import Iterator
from typing import Any, Protocol, final, runtime_checkable

import numpy as np

from gristmill._check import as_bool, as_int, as_seed
from gristmill._seed import new_generator
from gristmill._span import as_indices
from gristmill.errors import PlanError
from gristmill.options import NoSharding, ShardOptions, as_shard
from gristmill.order._record import RecordMetadata
from gristmill.order._shard import ENDLESS, contiguous_range, strided_length
from gristmill.order._shuffle import shuffled
from gristmill.types import Span


@runtime_checkable
class Sampler(Protocol):
    """What a user's own sampler must offer: the record at an index of the stream.

    It should raise `IndexError` past its end and may offer `__len__`; without it the length is
    found by trying. Its `repr` tells it apart in checkpoints.
    """

    def __getitem__(self, index: int, /) -> RecordMetadata: ...


@runtime_checkable
class BlockSampler(Protocol):
    """A sampler that answers for many indices in one call."""

    @property
    def num_records(self) -> int: ...

    @property
    def shard_options(self) -> ShardOptions: ...

    @property
    def seed(self) -> int | None: ...

    def num_positions(self, shard: ShardOptions) -> int:
        """Count the elements that a shard gets."""
        ...

    def keys(self, indices: Span) -> Span:
        """Give the record at each index of the stream."""
        ...


@final
class SequentialSampler:
    """All records once, in the order of the source.

    >>> [SequentialSampler(3)[i].record_key for i in range(3)]
    [0, 1, 2]
    """

    def __init__(
        self,
        num_records: int,
        shard_options: ShardOptions = NoSharding(),  # noqa: B008 - frozen
        seed: int | None = None,
    ) -> None:
        self.num_records: int = as_int("num_records", num_records, minimum=1)
        self.shard_options: ShardOptions = as_shard("shard_options", shard_options)
        self.seed: int | None = None if seed is None else as_seed(seed, bits=63)
        shards = shard_options.shard_count
        rest = self.num_records % shards if shard_options.drop_remainder else 0
        self._length = self.num_records - rest

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:  # Grain's to the letter: checkpoints hold it
        return (
            f"SequentialSampler(num_records={self.num_records}, "
            f"shard_options={self.shard_options!r})"
        )

    def __getitem__(self, index: int) -> RecordMetadata:
        return _metadata(self, index, len(self))

    def __iter__(self) -> Iterator[RecordMetadata]:
        return map(self.__getitem__, range(len(self)))

    def num_positions(self, shard: ShardOptions) -> int:
        """Count the elements that a shard gets."""
        return strided_length(len(self), shard)

    def keys(self, indices: Span) -> Span:
        """Give the record at each index of the stream."""
        return indices


@final
class IndexSampler:
    """All records for `num_epochs` epochs, or without end, shuffled anew in each if asked.

    With shard options, a shard owns a contiguous piece of the records and shuffles within it.

    >>> sampler = IndexSampler(num_records=5, shuffle=True, seed=42, num_epochs=2)
    >>> [sampler[index].record_key for index in range(len(sampler))]
    [4, 1, 2, 3, 0, 2, 0, 3, 1, 4]
    """

    def __init__(
        self,
        num_records: int,
        shard_options: ShardOptions = NoSharding(),  # noqa: B008 - frozen
        shuffle: bool = False,
        num_epochs: int | None = None,
        seed: int | None = None,
    ) -> None:
        self.num_records: int = as_int("num_records", num_records, minimum=1)
        self.shard_options: ShardOptions = as_shard("shard_options", shard_options)
        self.shuffle: bool = as_bool("shuffle", shuffle)
        self.num_epochs: int | None = (
            None if num_epochs is None else as_int("num_epochs", num_epochs, minimum=1)
        )
        if self.shuffle and seed is None:
            raise PlanError("`shuffle` needs a `seed`. Pass one, such as `seed=0`.")
        self.seed: int | None = None if seed is None else as_seed(seed)
        self._own = contiguous_range(self.num_records, shard_options)

    def __len__(self) -> int:
        if self.num_epochs is None:
            return ENDLESS
        shards = self.shard_options.shard_count
        rest = self.num_records % shards if self.shard_options.drop_remainder else 0
        return min((self.num_records - rest) * self.num_epochs, ENDLESS)

    def __repr__(self) -> str:  # Grain's to the letter: checkpoints hold it
        return (
            f"IndexSampler(num_records={self.num_records}, "
            f"shard_options={self.shard_options!r}, shuffle={self.shuffle}, "
            f"num_epochs={self.num_epochs}, seed={self.seed})"
        )

    def __getitem__(self, index: int) -> RecordMetadata:
        return _metadata(self, index, self._end)

    def __iter__(self) -> Iterator[RecordMetadata]:
        return map(self.__getitem__, range(len(self) if self._own else 0))

    @property
    def _end(self) -> int:
        """Bound the indices: a shard that owns more than its part reads on past the length."""
        if not self._own:
            return 0
        own = self.shard_options
        last = (self.num_positions(own) - 1) * own.shard_count + own.shard_index
        return max(len(self), last + 1)

    @property
    def epoch_size(self) -> int:
        """How many records an epoch has: those that the shard owns, or all."""
        return len(self._own)

    def with_shard(self, shard: ShardOptions) -> "IndexSampler":
        """Give the sampler of another shard."""
        return IndexSampler(self.num_records, shard, self.shuffle, self.num_epochs, self.seed)

    def num_positions(self, shard: ShardOptions) -> int:
        """Count the elements that a shard gets."""
        if self.shard_options.shard_count == 1:
            return strided_length(len(self), shard)
        if self.num_epochs is None and self._own:
            return ENDLESS
        return min(len(self._own) * (self.num_epochs or 0), ENDLESS)

    def keys(self, indices: Span) -> Span:
        """Give the record at each index of the stream."""
        places = _floor_divide(indices, self.shard_options.shard_count)
        size, first = len(self._own), self._own.start
        if isinstance(places, range):
            parts = [self._epoch(offsets, epoch) for epoch, offsets in _by_epoch(places, size)]
            if len(parts) == 1:
                return parts[0]
            return np.concatenate([as_indices(part) for part in parts])
        epochs, offsets = np.divmod(places, size)
        keys = offsets + first
        for epoch in np.unique(epochs).tolist():
            chosen = epochs == epoch
            keys[chosen] = self._epoch(offsets[chosen], epoch)
        return keys

    def _epoch(self, offsets: Span, epoch: int) -> Span:
        """Give the records at some offsets into one epoch."""
        first = self._own.start
        if self.shuffle and self.seed is not None:
            seed = (self.seed + epoch) % 2**32
            return shuffled(as_indices(offsets), num_records=len(self._own), seed=seed) + first
        if isinstance(offsets, range):
            return range(offsets.start + first, offsets.stop + first, offsets.step)
        return offsets + first


@final
class AllShards:
    """The streams of all shards of a sampler: shard s of n has the indices s, s + n, ...

    >>> sampler = IndexSampler(num_records=5, num_epochs=1)
    >>> AllShards(sampler, 2).keys(np.arange(6)).tolist()  # 0 1 2, and 3 4
    [0, 3, 1, 4, 2, 3]
    """

    def __init__(self, sampler: IndexSampler, count: int) -> None:
        drops = sampler.shard_options.drop_remainder
        self._shards: list[IndexSampler] = [
            sampler.with_shard(ShardOptions(number, count, drops)) for number in range(count)
        ]
        self.num_records = sampler.num_records
        self.seed = sampler.seed
        self.shard_options: ShardOptions = NoSharding()

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many elements each has."""
        return tuple(shard.num_positions(shard.shard_options) for shard in self._shards)

    def __getitem__(self, index: int) -> RecordMetadata:
        return self._shards[index % len(self._shards)][index]

    def num_positions(self, shard: ShardOptions) -> int:
        """Count the elements that a shard gets."""
        return strided_length(min(sum(self.lengths), ENDLESS), shard)

    def keys(self, indices: Span) -> Span:
        """Give the record at each index."""
        wanted = as_indices(indices)
        owners = wanted % len(self._shards)
        keys = np.empty_like(wanted)
        for number, shard in enumerate(self._shards):
            mine = owners == number
            if mine.any():
                keys[mine] = shard.keys(wanted[mine])
        return keys


def _floor_divide(indices: Span, divisor: int) -> Span:
    if divisor == 1:
        return indices
    if isinstance(indices, range):
        if indices.step % divisor == 0:
            first, step = indices.start // divisor, indices.step // divisor
            return range(first, first + len(indices) * step, step)
        indices = as_indices(indices)
    return indices // divisor


def _by_epoch(places: range, size: int) -> Iterator[tuple[int, range]]:
    """Cut evenly spaced places of a repeated stream at the ends of its epochs."""
    while places:
        epoch, first = divmod(places.start, size)
        count = min(len(places), -(-(size - first) // places.step))
        yield epoch, range(first, first + count * places.step, places.step)
        places = places[count:]


def _metadata(sampler: BlockSampler, index: Any, length: int) -> RecordMetadata:
    place = operator.index(index)
    if not 0 <= place < length:
        raise IndexError(f"`index` must be in [0, {length}), got {place}.")
    key = int(sampler.keys(range(place, place + 1))[0])
    rng = None if sampler.seed is None else new_generator(sampler.seed + place)
    return RecordMetadata(index=place, record_key=key, rng=rng)
