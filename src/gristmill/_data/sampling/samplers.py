"""Samplers: which record is at each index of the stream.

                        index   0  1  2  3  4  5  6  7  8  9
    SequentialSampler, 2 shards s0 s1 s0 s1 s0 s1 s0 s1 s0 s1     shards stride over the records
    IndexSampler, 2 shards      s0 s1 s0 s1 s0 s1 s0 s1 s0 s1     shards stride over the stream,
                    record      0  5  1  6  2  7  3  8  4  9      each owns a range of records

gristmill's samplers return the records at many indices at once (`keys`); a user's sampler returns
one at a time (`__getitem__`).
"""

from collections.abc import Iterator
from typing import Protocol, SupportsIndex, final, runtime_checkable

import numpy as np

from gristmill._base.checks import as_bool, as_int, as_num_epochs, as_seed
from gristmill._base.indices import as_indices, check_index, split_epochs
from gristmill._base.seed import new_generator
from gristmill._data.sampling.record import RecordMetadata
from gristmill._data.sampling.shard_lengths import ENDLESS, contiguous_range, strided_length
from gristmill._data.sampling.shard_options import as_shard
from gristmill._data.sampling.shuffle import shuffled, unshuffled
from gristmill.errors import PlanError
from gristmill.options import NoSharding, ShardOptions
from gristmill.types import Indices, Span


@runtime_checkable
class Sampler(Protocol):
    """The interface of a user's own sampler: the record at an index of the stream.

    It should raise `IndexError` past its end, and can define `__len__`; otherwise the length is
    found by trying indices. Checkpoints identify it by its `repr`.

    >>> from gristmill import DataLoader, RecordMetadata
    >>> class Backwards:
    ...     def __init__(self, num_records):
    ...         self.num_records = num_records
    ...
    ...     def __repr__(self):
    ...         return f"Backwards({self.num_records})"
    ...
    ...     def __len__(self):
    ...         return self.num_records
    ...
    ...     def __getitem__(self, index):
    ...         if not 0 <= index < self.num_records:
    ...             raise IndexError(index)
    ...         return RecordMetadata(index=index, record_key=self.num_records - 1 - index)
    >>> list(DataLoader(data_source=list("abc"), sampler=Backwards(3)))
    ['c', 'b', 'a']
    """

    def __getitem__(self, index: int, /) -> RecordMetadata: ...


@runtime_checkable
class BlockSampler(Protocol):
    """A sampler that returns the records at many indices in one call."""

    @property
    def num_records(self) -> int: ...

    @property
    def shard_options(self) -> ShardOptions: ...

    @property
    def seed(self) -> int | None: ...

    def num_positions(self, shard: ShardOptions) -> int:
        """Return the number of elements of a shard.

        Args:
            shard: The shard.
        """
        ...

    def keys(self, indices: Span) -> Span:
        """Return the record at each index of the stream.

        Args:
            indices: Indices of the stream.
        """
        ...


@final
class SequentialSampler:
    """Reads all records once, in the order of the source.

    Args:
        num_records: Number of records in the source.
        shard_options: The shard to read. Shards stride over the records.
        seed: Seed of the random generators that transformations receive.

    >>> [SequentialSampler(3)[i].record_key for i in range(3)]
    [0, 1, 2]

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If an argument has the wrong type.
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
        remaining = self.num_records % shards if shard_options.drop_remainder else 0
        self._length = self.num_records - remaining

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:  # the same as Grain's: checkpoints contain it
        return (
            f"SequentialSampler(num_records={self.num_records}, "
            f"shard_options={self.shard_options!r})"
        )

    def __getitem__(self, index: int) -> RecordMetadata:
        return read_metadata(self, index, len(self))

    def __iter__(self) -> Iterator[RecordMetadata]:
        return map(self.__getitem__, range(len(self)))

    @property
    def epoch_size(self) -> int:
        """Number of records in an epoch."""
        return self._length

    def num_positions(self, shard: ShardOptions) -> int:
        """Return the number of elements of a shard.

        Args:
            shard: The shard.
        """
        return strided_length(len(self), shard)

    def keys(self, indices: Span) -> Span:
        """Return the record at each index of the stream; later epochs are equal to the first.

        Args:
            indices: Indices of the stream.
        """
        if isinstance(indices, range):
            if not indices or (indices[0] >= 0 and indices[-1] < self._length):
                return indices
            indices = as_indices(indices)
        return as_indices(indices % self._length) if self._length else indices

    def offsets_of(self, record: int, epoch: int) -> Indices:
        """Return the offsets in an epoch at which a record comes. All epochs are equal.

        Args:
            record: The index of a record in the source.
            epoch: The number of an epoch, starting at 0.
        """
        return as_indices([record] if record < self._length else [])


@final
class IndexSampler:
    """Reads all records for some epochs, in order or shuffled differently in each epoch.

    Args:
        num_records: Number of records in the source.
        shard_options: The shard to read. A shard owns a contiguous range of the records and
            shuffles within it.
        shuffle: Whether to shuffle; requires `seed`.
        num_epochs: Number of passes over the records; `None` for an endless stream.
        seed: Seed of the order and of the random generators that transformations receive.

    >>> sampler = IndexSampler(num_records=5, shuffle=True, seed=42, num_epochs=2)
    >>> [sampler[index].record_key for index in range(len(sampler))]
    [4, 1, 2, 3, 0, 2, 0, 3, 1, 4]

    Raises:
        PlanError: If a value is out of bounds, or `shuffle` is set without a `seed`.
        PlanTypeError: If an argument has the wrong type.
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
        self.num_epochs: int | None = as_num_epochs(num_epochs)
        if self.shuffle and seed is None:
            raise PlanError("Shuffling requires specifying a seed. Pass one, such as `seed=0`.")
        self.seed: int | None = None if seed is None else as_seed(seed)
        self._own = contiguous_range(self.num_records, shard_options)

    def __len__(self) -> int:
        if self.num_epochs is None:
            return ENDLESS
        shards = self.shard_options.shard_count
        remaining = self.num_records % shards if self.shard_options.drop_remainder else 0
        return min((self.num_records - remaining) * self.num_epochs, ENDLESS)

    def __repr__(self) -> str:  # the same as Grain's: checkpoints contain it
        return (
            f"IndexSampler(num_records={self.num_records}, "
            f"shard_options={self.shard_options!r}, shuffle={self.shuffle}, "
            f"num_epochs={self.num_epochs}, seed={self.seed})"
        )

    def __getitem__(self, index: int) -> RecordMetadata:
        return read_metadata(self, index, self._end)

    def __iter__(self) -> Iterator[RecordMetadata]:
        return map(self.__getitem__, range(len(self) if self._own else 0))

    @property
    def _end(self) -> int:
        """Bound of the indices: a shard with more records than others reads past the length."""
        if not self._own:
            return 0
        own = self.shard_options
        last = (self.num_positions(own) - 1) * own.shard_count + own.shard_index
        return max(len(self), last + 1)

    @property
    def epoch_size(self) -> int:
        """Number of records in an epoch: those of the shard, or all."""
        return len(self._own)

    def with_shard(self, shard: ShardOptions) -> "IndexSampler":
        """Return the sampler of another shard.

        Args:
            shard: The shard to read.
        """
        return IndexSampler(self.num_records, shard, self.shuffle, self.num_epochs, self.seed)

    def num_positions(self, shard: ShardOptions) -> int:
        """Return the number of elements of a shard.

        Args:
            shard: The shard.
        """
        if self.shard_options.shard_count == 1:
            return strided_length(len(self), shard)
        if self.num_epochs is None and self._own:
            return ENDLESS
        return min(len(self._own) * (self.num_epochs or 0), ENDLESS)

    def keys(self, indices: Span) -> Span:
        """Return the record at each index of the stream.

        Args:
            indices: Indices of the stream.
        """
        positions = _floor_divide(indices, self.shard_options.shard_count)
        size, first = len(self._own), self._own.start
        if isinstance(positions, range):
            epochs = [self._epoch(offsets, epoch) for epoch, offsets in _by_epoch(positions, size)]
            if len(epochs) == 1:
                return epochs[0]
            return np.concatenate([as_indices(keys) for keys in epochs])
        epochs, offsets = split_epochs(positions, size)
        keys = offsets + first
        for epoch in np.unique(epochs).tolist():
            chosen = epochs == epoch
            keys[chosen] = self._epoch(offsets[chosen], epoch)
        return keys

    def offsets_of(self, record: int, epoch: int) -> Indices:
        """Return the offsets in an epoch at which a record comes: one, if the shard has it.

        Args:
            record: The index of a record in the source.
            epoch: The number of an epoch, starting at 0.
        """
        if record not in self._own:
            return as_indices([])
        offsets = as_indices([record - self._own.start])
        if self.shuffle and self.seed is not None:
            seed = (self.seed + epoch) % 2**32
            return unshuffled(offsets, num_records=len(self._own), seed=seed)
        return offsets

    def _epoch(self, offsets: Span, epoch: int) -> Span:
        """Return the records at some offsets within one epoch."""
        first = self._own.start
        if self.shuffle and self.seed is not None:
            seed = (self.seed + epoch) % 2**32
            return shuffled(as_indices(offsets), num_records=len(self._own), seed=seed) + first
        if isinstance(offsets, range):
            return range(offsets.start + first, offsets.stop + first, offsets.step)
        return offsets + first


@final
class AllShardsSampler:
    """Combines the streams of all shards of a sampler: shard s of n has the indices s, s + n, ...

    >>> sampler = IndexSampler(num_records=5, num_epochs=1)
    >>> AllShardsSampler(sampler, 2).keys(np.arange(6)).tolist()  # 0 1 2, and 3 4
    [0, 3, 1, 4, 2, 3]
    """

    def __init__(self, sampler: IndexSampler, count: int, epoch: int | None = None) -> None:
        drops = sampler.shard_options.drop_remainder
        self._epoch = epoch
        self._shards: list[IndexSampler] = [
            sampler.with_shard(ShardOptions(number, count, drops)) for number in range(count)
        ]
        self.num_records = sampler.num_records
        self.seed = sampler.seed
        self.shard_options: ShardOptions = NoSharding()

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of elements of each shard: of one epoch, or of all."""
        if self._epoch is not None:
            return tuple(shard.epoch_size for shard in self._shards)
        return tuple(shard.num_positions(shard.shard_options) for shard in self._shards)

    def from_epoch(self, indices: Indices) -> Indices:
        """Return the indices in the whole stream of indices that count from the epoch on."""
        if self._epoch is None:
            return indices
        count, first = len(self._shards), self._epoch * len(self._shards)
        starts = np.array([first * shard.epoch_size for shard in self._shards], dtype=np.int64)
        return indices + starts[as_indices(indices % count)]

    def epoch_of(self, index: int) -> int:
        """Return the epoch of an index."""
        number, owner = divmod(index, len(self._shards))
        return number // self._shards[owner].epoch_size

    def __getitem__(self, index: int) -> RecordMetadata:
        return self._shards[index % len(self._shards)][index]

    def num_positions(self, shard: ShardOptions) -> int:
        """Return the number of elements of a shard.

        Args:
            shard: The shard.
        """
        return strided_length(min(sum(self.lengths), ENDLESS), shard)

    def keys(self, indices: Span) -> Span:
        """Return the record at each index.

        Args:
            indices: Indices of the stream.
        """
        wanted = as_indices(indices)
        owners = wanted % len(self._shards)
        keys = np.empty(len(wanted), dtype=np.int64)
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


def _by_epoch(positions: range, size: int) -> Iterator[tuple[int, range]]:
    """Split evenly spaced positions of a repeated stream at the ends of its epochs."""
    while positions:
        epoch, first = divmod(positions.start, size)
        count = min(len(positions), -(-(size - first) // positions.step))
        yield epoch, range(first, first + count * positions.step, positions.step)
        positions = positions[count:]


def read_metadata(sampler: BlockSampler, index: SupportsIndex, length: int) -> RecordMetadata:
    """Return the metadata of a sampler of gristmill at an index of its stream."""
    position = check_index(index, length)
    key = int(sampler.keys(range(position, position + 1))[0])
    rng = None if sampler.seed is None else new_generator(sampler.seed + position)
    return RecordMetadata(index=position, record_key=key, rng=rng)
