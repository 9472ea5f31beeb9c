"""Samplers that choose the records of each epoch: from a list, or at random by weights."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, cast, final

import numpy as np

from gristmill._base.checks import as_bool, as_num_epochs, as_seed
from gristmill._base.indices import as_indices, keys_by_epoch, split_epochs
from gristmill._data.sampling.labels import Labels, as_labels
from gristmill._data.sampling.record import RecordMetadata
from gristmill._data.sampling.samplers import read_metadata
from gristmill._data.sampling.shard_lengths import ENDLESS, strided_length
from gristmill._data.sampling.shard_options import as_shard
from gristmill._data.sampling.shuffle import shuffled
from gristmill._data.sampling.weights import WeightedDraws, balanced_weights
from gristmill.errors import PlanError, PlanTypeError
from gristmill.options import NoSharding, ShardOptions
from gristmill.types import AnyArray, Element, Indices, RandomAccessDataSource, Span


class EpochSampler(ABC):
    """A sampler whose epochs have the same length. Shards stride over its stream."""

    def __init__(
        self,
        *,
        num_records: int,
        epoch_size: int,
        num_epochs: int | None,
        seed: int | None,
        shard_options: ShardOptions,
    ) -> None:
        self.num_records: int = num_records
        self.epoch_size: int = epoch_size
        self.num_epochs: int | None = as_num_epochs(num_epochs)
        self.seed: int | None = None if seed is None else as_seed(seed)
        self.shard_options: ShardOptions = as_shard("shard_options", shard_options)

    @abstractmethod
    def epoch_keys(self, epoch: int, offsets: Indices) -> Indices:
        """Return the record at each of some offsets in an epoch.

        Args:
            epoch: The number of an epoch, starting at 0.
            offsets: Positions within the epoch.
        """

    def offsets_of(self, record: int, epoch: int) -> Indices:
        """Return the offsets in an epoch at which a record comes, by reading the whole epoch.

        Args:
            record: The index of a record in the source.
            epoch: The number of an epoch, starting at 0.
        """
        keys = self.epoch_keys(epoch, np.arange(self.epoch_size))
        return as_indices(np.flatnonzero(keys == record))

    def __len__(self) -> int:
        if self.num_epochs is None:
            return ENDLESS
        return min(self.epoch_size * self.num_epochs, ENDLESS)

    def __getitem__(self, index: int) -> RecordMetadata:
        return read_metadata(self, index, len(self))

    def __iter__(self) -> Iterator[RecordMetadata]:
        return map(self.__getitem__, range(len(self)))

    def num_positions(self, shard: ShardOptions) -> int:
        """Return the number of elements of a shard.

        Args:
            shard: The shard.
        """
        return strided_length(len(self), shard)

    def keys(self, indices: Span) -> Span:
        """Return the record at each index of the stream.

        Args:
            indices: Indices of the stream.
        """
        epochs, offsets = split_epochs(as_indices(indices), self.epoch_size)
        return keys_by_epoch(epochs, offsets, self.epoch_keys)


@final
class WeightedSampler(EpochSampler):
    """Draws records at random, in proportion to weights.

    What is drawn is a function of the seed and the position alone. With replacement, a draw costs
    a binary search in the weights. Without replacement, all draws of an epoch are computed at its
    first one: about 0.2 s for a million records, with 8 bytes of memory for each draw.

    >>> sampler = WeightedSampler([1, 0, 3], num_epochs=1, num_samples=8, seed=0)
    >>> [sampler[index].record_key for index in range(len(sampler))]
    [2, 0, 2, 0, 2, 2, 2, 2]

    Args:
        weights: A weight of at least 0 for each record of the source. They need not add up to 1.
        num_samples: The number of draws in an epoch. By default the number of records; without
            replacement, the number of records with a weight above 0.
        replacement: Whether a record can be drawn several times in an epoch. Without, a record is
            drawn at most once in an epoch, and records with larger weights tend to come earlier.
        num_epochs: The number of epochs; `None` for an endless stream.
        seed: The seed of the draws and of the random generators that transformations receive.
        shard_options: The shard to read. Shards stride over the stream.

    Raises:
        PlanError: A weight is negative or not finite, all are 0, or `num_samples` is too large.
    """

    def __init__(
        self,
        weights: Sequence[float] | AnyArray,
        *,
        num_samples: int | None = None,
        replacement: bool = True,
        num_epochs: int | None = None,
        seed: int,
        shard_options: ShardOptions = NoSharding(),  # noqa: B008 - frozen
    ) -> None:
        numbers = _as_array("weights", weights)
        self._draws = WeightedDraws.of(
            numbers, num_samples=num_samples, replacement=replacement, seed=seed
        )
        super().__init__(
            num_records=len(numbers),
            epoch_size=self._draws.num_samples,
            num_epochs=num_epochs,
            seed=seed,
            shard_options=shard_options,
        )

    @staticmethod
    def balanced(
        source: RandomAccessDataSource[Element],
        label: Labels,
        *,
        num_samples: int | None = None,
        replacement: bool = True,
        num_epochs: int | None = None,
        seed: int,
        shard_options: ShardOptions = NoSharding(),  # noqa: B008 - frozen
    ) -> "WeightedSampler":
        """Return a sampler that draws each class as often as any other.

        >>> animals = [{"kind": "cat"}] * 8 + [{"kind": "dog"}] * 2
        >>> sampler = WeightedSampler.balanced(
        ...     animals, "kind", num_samples=1000, num_epochs=1, seed=0)
        >>> sum(animals[sampler[i].record_key]["kind"] == "dog" for i in range(1000))
        521

        Args:
            source: The records.
            label: The class of each record: the key of a column, a function of a record, or a list
                or array with the class of each record. With a key or a function, this call reads
                all records; of a source with columns, only that column.
            num_samples: The number of draws in an epoch. By default the number of records.
            replacement: Whether a record can be drawn several times in an epoch. Without, classes
                are balanced only until the smaller ones are exhausted.
            num_epochs: The number of epochs; `None` for an endless stream.
            seed: The seed of the draws and of the random generators that transformations receive.
            shard_options: The shard to read. Shards stride over the stream.
        """
        return WeightedSampler(
            balanced_weights(as_labels("label", label, source)),
            num_samples=num_samples,
            replacement=replacement,
            num_epochs=num_epochs,
            seed=seed,
            shard_options=shard_options,
        )

    def epoch_keys(self, epoch: int, offsets: Indices) -> Indices:
        """Return the record at each of some offsets in an epoch.

        Args:
            epoch: The number of an epoch, starting at 0.
            offsets: Positions within the epoch.
        """
        return self._draws.epoch_keys(epoch, offsets)

    def __repr__(self) -> str:
        return (
            f"WeightedSampler({self._draws}, num_epochs={self.num_epochs}, "
            f"shard_options={self.shard_options!r})"
        )


@final
class SubsetSampler(EpochSampler):
    """Reads the records at given indices, in that order or shuffled differently in each epoch.

    >>> [record.record_key for record in SubsetSampler([7, 2, 7], num_epochs=2)]
    [7, 2, 7, 7, 2, 7]

    Args:
        indices: The indices of the records. One that is listed twice is read twice.
        shuffle: Whether to shuffle them; requires `seed`.
        num_epochs: The number of passes over the indices; `None` for an endless stream.
        seed: The seed of the order and of the random generators that transformations receive.
        shard_options: The shard to read. Shards stride over the stream.

    Raises:
        PlanError: There are no indices, or one is negative.
        PlanTypeError: An index is not an integer.
    """

    def __init__(
        self,
        indices: Sequence[int] | AnyArray,
        *,
        shuffle: bool = False,
        num_epochs: int | None = None,
        seed: int | None = None,
        shard_options: ShardOptions = NoSharding(),  # noqa: B008 - frozen
    ) -> None:
        listed = _as_array("indices", indices)
        if not len(listed):
            raise PlanError("`indices` must have at least one index, got none.")
        if listed.dtype.kind not in "iu":
            is_mask = listed.dtype.kind == "b"
            remedy = "Pass `np.flatnonzero(mask)`." if is_mask else "Convert them first."
            raise PlanTypeError(
                f"`indices` must be integers, got values of type {listed.dtype}. {remedy}"
            )
        if listed.min() < 0:
            raise PlanError(
                f"`indices` must be at least 0, got {listed.min()}. Count from the start."
            )
        self.shuffle: bool = as_bool("shuffle", shuffle)
        if self.shuffle and seed is None:
            raise PlanError("Shuffling requires specifying a seed. Pass one, such as `seed=0`.")
        self._indices = listed.astype(np.int64)
        super().__init__(
            num_records=int(listed.max()) + 1,
            epoch_size=len(listed),
            num_epochs=num_epochs,
            seed=seed,
            shard_options=shard_options,
        )

    def epoch_keys(self, epoch: int, offsets: Indices) -> Indices:
        """Return the record at each of some offsets in an epoch.

        Args:
            epoch: The number of an epoch, starting at 0.
            offsets: Positions within the epoch.
        """
        if self.shuffle and self.seed is not None:
            seed = (self.seed + epoch) % 2**32
            offsets = shuffled(offsets, num_records=self.epoch_size, seed=seed)
        return self._indices[offsets]

    def __repr__(self) -> str:  # part of checkpoints: the digest stands for the indices
        return (
            f"SubsetSampler(<{self.epoch_size} indices {zlib.crc32(self._indices.tobytes()):08x}>, "
            f"shuffle={self.shuffle}, num_epochs={self.num_epochs}, seed={self.seed}, "
            f"shard_options={self.shard_options!r})"
        )


def _as_array(name: str, values: object) -> AnyArray:
    """Return a list of numbers as an array of one dimension."""
    try:
        array = np.asarray(cast(Any, values))
    except (ValueError, OverflowError):
        array = np.empty((0, 0))
    if array.ndim != 1:
        raise PlanTypeError(f"`{name}` must be a list or an array of numbers, got {values!r:.100}.")
    return array
