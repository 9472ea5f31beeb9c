"""The records of a source, and those of a source in the order of a sampler."""

import sys
from collections.abc import Sequence, Sized
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self, SupportsIndex, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._base.grain.classes import IterDataset
from gristmill._base.indices import as_indices, exact_up_to, scale
from gristmill._base.trees.columns import Columns, SupportsColumns
from gristmill._base.trees.tree import map_leaves
from gristmill._data.sampling.epoch_samplers import (
    EpochSampler,
    SubsetSampler,
    WeightedSampler,
)
from gristmill._data.sampling.record import RecordMetadata
from gristmill._data.sampling.remaining import Remaining
from gristmill._data.sampling.samplers import (
    AllShardsSampler,
    BlockSampler,
    IndexSampler,
    Sampler,
    SequentialSampler,
)
from gristmill._data.sampling.shard_lengths import strided_length
from gristmill._data.sampling.shard_options import as_shard
from gristmill._data.sources.memory.array import ArraySource
from gristmill._data.sources.memory.frame import FrameSource, groups_of, is_frame
from gristmill._data.sources.memory.range import RangeDataSource
from gristmill._plan.element_spec import ParentSpecs, ShapeDtypeStruct
from gristmill._plan.nodes.base import Collate, EpochChange, Node, RecordsNode, kind_of, stable_repr
from gristmill.errors import PlanError, PlanTypeError, SpecError
from gristmill.options import NoSharding, ShardOptions
from gristmill.types import (
    Element,
    RandomAccessDataSource,
    Span,
    SupportsCollate,
    SupportsGetItems,
    Tree,
)


@final
@frozen_dataclass
class SourceNode(Node):
    """The records of a source, in the source's order."""

    user_part: ClassVar[str] = "source"

    source: RandomAccessDataSource[Element]

    def __post_init__(self) -> None:
        source = cast("object", self.source)  # the user may have passed anything
        if isinstance(source, type):
            raise PlanTypeError(
                f"`data_source` is the class {source.__name__}. Pass an instance of it."
            )
        if isinstance(source, str | bytes):
            raise PlanTypeError(
                f"`data_source` is the string {source!r:.200}. Pass a source that reads it, such "
                "as `gristmill.sources.open_source(path)`."
            )
        if isinstance(source, dict):
            raise PlanTypeError(
                "`data_source` is a dict. Wrap a dict of arrays as `ArraySource(arrays)`."
            )
        if isinstance(source, IterDataset):
            raise PlanTypeError(
                "`data_source` is a stream, an `IterDataset`, whose elements have no index. Use "
                "its own methods instead of a loader: `stream.shuffle(buffer_size, seed=0)"
                ".batch(32)`; or load the `MapDataset` that it was made of."
            )
        if type(source).__name__ == "LazyFrame":
            raise PlanTypeError(
                "`data_source` is a query of polars, a LazyFrame. Pass its result: "
                "`frame.collect()`."
            )
        groups = groups_of(source)
        if groups is not None:
            raise PlanTypeError(
                f"`data_source` is {groups}, which has no records by position. Pass the frame "
                "itself, or a list of its groups: `[group for _, group in grouped]`."
            )
        if not is_frame(source) and not isinstance(source, RandomAccessDataSource):
            raise PlanTypeError(
                f"`data_source` must have `__len__` and `__getitem__`, got {stable_repr(source)}. "
                "Make a list of it, write a class with both, or use `from_generator` for an "
                "iterable."
            )
        if isinstance(source, np.ndarray):
            array = cast("NDArray[Any]", source)
            object.__setattr__(self, "source", ArraySource(array))
        if is_frame(self.source):
            object.__setattr__(self, "source", FrameSource(self.source))

    @property
    def label(self) -> str:
        source = self.source
        kind = kind_of(source)
        shown = kind if isinstance(source, list | tuple) else stable_repr(source)
        return f"{kind}(<{self.length()} records>)" if shown == kind else shown

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    @property
    def parents(self) -> tuple[()]:
        return ()

    def with_parents(self, parents: Sequence[Node]) -> Self:
        return self

    def length(self) -> int:
        source: Sized = self.source
        return len(source)

    @property
    def reads_many(self) -> bool:
        return isinstance(self.source, SupportsGetItems)

    @property
    def collate(self) -> Collate | None:
        return self.source.collate if isinstance(self.source, SupportsCollate) else None

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        source = self.source
        if isinstance(source, RangeDataSource):
            return ShapeDtypeStruct((), np.int64)
        if isinstance(source, SupportsColumns) and source.is_columnar:
            columns = source.read_columns(range(0))
            # The size of a string is not known before it is read, and rows may be of any size.
            if isinstance(columns, Columns) and not columns.holds_objects:
                return map_leaves(_row_spec, columns.gather())
        raise SpecError(f"The records of {self.label} are not known before they are read.")


ExcludedFrom: TypeAlias = tuple[int, tuple[int, ...]]
"""A position, and the records that are left out from there on, in ascending order."""


@final
@frozen_dataclass
class SampleNode(RecordsNode):
    """The records of a source in the order of a sampler.

    Position p of shard s of n has index p * n + s in the stream of the sampler.
    """

    user_part: ClassVar[str] = "sampler"

    parent: SourceNode
    sampler: Sampler | BlockSampler
    shard: ShardOptions
    remaining: Remaining | None = None
    """What other shards left of the stream, if this shard continues from there."""
    excluded: tuple[ExcludedFrom, ...] = ()
    """Records that are left out: there is no element at their positions."""
    epoch: int | None = None
    """The only epoch to read, if not all. Its records have the indices they have in the stream."""

    def __post_init__(self) -> None:
        sampler = self.sampler
        is_other = isinstance(cast("object", sampler), type | str | bytes | dict)
        if is_other or not isinstance(sampler, Sampler):
            raise PlanTypeError(
                f"`sampler` must have `__getitem__`, got {stable_repr(sampler)}. "
                "Use `IndexSampler(num_records=len(source), ...)`."
            )
        if isinstance(sampler, WeightedSampler) and sampler.num_records != self.parent.length():
            raise PlanError(
                f"`sampler` has {sampler.num_records} weights, the source has "
                f"{self.parent.length()} records. Pass a weight for each record, and 0 for those "
                "that are never drawn."
            )
        if isinstance(sampler, SubsetSampler) and sampler.num_records > self.parent.length():
            raise PlanError(
                f"`sampler` has the index {sampler.num_records - 1}, the source has "
                f"{self.parent.length()} records. Pass indices from 0 to "
                f"{self.parent.length() - 1}."
            )
        if isinstance(sampler, BlockSampler) and sampler.num_records > self.parent.length():
            raise PlanError(
                f"`sampler` needs {sampler.num_records} records, the source has "
                f"{self.parent.length()}. Pass `num_records=len(data_source)` to the sampler."
            )

    @property
    def label(self) -> str:
        return stable_repr(self.sampler, limit=1000)

    @property
    def description(self) -> str:
        """The sampler without its shard: another shard may continue with what remains."""
        shown, sampler = self.label, self.sampler
        if isinstance(sampler, IndexSampler | SequentialSampler | EpochSampler):
            shown = (
                repr(sampler)
                .replace(f"shard_options={sampler.shard_options!r}, ", "")
                .replace(f", shard_options={sampler.shard_options!r}", "")
            )
            shown = shown if "seed=" in shown else f"{shown} (seed={sampler.seed})"
        shown = shown if self.epoch is None else f"{shown}, epoch {self.epoch}"
        return f"{shown}, remainder of shards dropped" if self.shard.drop_remainder else shown

    @property
    def is_order(self) -> bool:
        return True

    @property
    def seed(self) -> int | None:
        """The seed of the random generators of records, if the sampler has one."""
        return self.sampler.seed if isinstance(self.sampler, BlockSampler) else None

    @property
    def is_dense(self) -> bool:
        return not self.excluded

    def length(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        if self.remaining is not None:
            return self.remaining.num_positions(self.shard)
        if self.epoch is not None and self.has_contiguous_shards:
            return self.num_indices
        if self.epoch is None and isinstance(self.sampler, BlockSampler):
            return self.sampler.num_positions(self.shard)
        return strided_length(self.num_indices, self.shard)

    @cached_property
    def num_indices(self) -> int:
        """The length of the sampler's stream, or of one epoch, for all shards together.

        If a shard is a range of the records, the length of an epoch is that of the shard.
        """
        sampler = self.sampler
        if self.epoch is not None:
            return _epoch_size(sampler)
        return len(sampler) if isinstance(sampler, Sized) else _find_length(sampler)

    def indices(self, positions: Span) -> Span:
        """Return the index in the sampler's stream at each position."""
        shards, first = self.shard.shard_count, self.shard.shard_index
        if isinstance(positions, range):
            step = positions.step * shards
            start = positions.start * shards + first
            indices = range(start, start + len(positions) * step, step)
        else:
            indices = scale(positions, shards, first)
        if self.remaining is not None:
            indices = self.remaining.numbers(as_indices(indices))
        return indices if self.epoch is None else self._from_epoch(indices, self.epoch)

    def _from_epoch(self, indices: Span, epoch: int) -> Span:
        """Return the indices in the stream of indices that count from the epoch on."""
        if isinstance(self.sampler, AllShardsSampler):
            return self.sampler.from_epoch(as_indices(indices))
        shards = self.shard.shard_count if self.has_contiguous_shards else 1
        start = epoch * _epoch_size(self.sampler) * shards
        if isinstance(indices, range):
            return range(indices.start + start, indices.stop + start, indices.step)
        return exact_up_to(indices, 2**62 - start) + start

    def metadata(self, position: int) -> RecordMetadata:
        """Return the sampler's metadata of the record at a position."""
        index = int(self.indices(range(position, position + 1))[0])
        sampler = self.sampler
        if isinstance(sampler, BlockSampler):
            return RecordMetadata(index, int(sampler.keys(range(index, index + 1))[0]))
        found: Any = sampler[index]
        if isinstance(found, SupportsIndex):
            return RecordMetadata(index, found.__index__())
        return found

    @property
    def own_shard(self) -> tuple[int, int]:
        return self.shard.shard_index, self.shard.shard_count

    @property
    def has_contiguous_shards(self) -> bool:
        sampler = self.sampler
        return isinstance(sampler, IndexSampler) and sampler.shard_options.shard_count > 1

    def with_shard(self, shard: ShardOptions, *, is_contiguous: bool) -> Self:
        shard = replace(shard, drop_remainder=self.shard.drop_remainder)
        sampler = self.sampler
        if isinstance(sampler, IndexSampler):
            sampler = sampler.with_shard(shard if is_contiguous else ShardOptions(0, 1))
        return replace(self, sampler=sampler, shard=shard)

    def resharded(
        self, shards: Sequence[RecordsNode], positions: Sequence[int], shard: ShardOptions
    ) -> tuple[Self, Remaining]:
        sampler, remaining = self.sampler, self.remaining
        if remaining is not None:
            remaining = remaining.after(positions)
        elif isinstance(sampler, IndexSampler) and sampler.shard_options.shard_count > 1:
            sampler = AllShardsSampler(sampler, len(shards), self.epoch)
            remaining = Remaining(sampler.lengths).after(positions, by_stream=True)
        else:
            remaining = Remaining((self.num_indices,)).after(positions)
        shard = replace(shard, drop_remainder=self.shard.drop_remainder)
        # Whatever remains comes after the positions from which on records are left out.
        excluded = tuple((0, records) for _, records in self.excluded)
        node = replace(self, sampler=sampler, remaining=remaining, shard=shard, excluded=excluded)
        return node, remaining


def shard_for(sampler: object, shard_options: ShardOptions | None) -> ShardOptions:
    """Return the shard to read, which the loader, the sampler or both determine."""
    # Grain's samplers, and users' own that follow them, store it under the private name.
    own: Any = getattr(sampler, "shard_options", getattr(sampler, "_shard_options", None))
    if shard_options is not None:
        shard_options = as_shard("shard_options", shard_options)
    if own is None or own.shard_count == 1:
        return shard_options or NoSharding()
    if shard_options is not None and not isinstance(
        sampler, IndexSampler | SequentialSampler | EpochSampler
    ):
        return shard_options  # such as `NoSharding` for a user's sampler that shards by itself
    index_and_count = (own.shard_index, own.shard_count)
    if shard_options is None:
        return ShardOptions(*index_and_count, drop_remainder=own.drop_remainder)
    if (shard_options.shard_index, shard_options.shard_count) != index_and_count:
        raise PlanError(
            f"`shard_options` of the loader ({shard_options!r}) and of the sampler ({own!r}) "
            "contradict each other. Leave them out of one of the two."
        )
    return shard_options


def _epoch_size(sampler: object) -> int:
    if isinstance(sampler, IndexSampler | SequentialSampler | EpochSampler):
        return sampler.epoch_size
    raise PlanError(
        f"The epochs of the sampler {stable_repr(sampler)} are not known. Use `IndexSampler`, "
        "`SubsetSampler` or `WeightedSampler`."
    )


def _row_spec(column: NDArray[Any]) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(column.shape[1:], column.dtype)


def _find_length(sampler: Sampler | BlockSampler) -> int:
    """Search for the first index past the end of a sampler that has no `__len__`."""
    user_sampler = cast("Sampler", sampler)
    low, high = 0, sys.maxsize
    while low < high:
        middle = (low + high) // 2
        try:
            user_sampler[middle]
        except IndexError:
            high = middle
        else:
            low = middle + 1
    return low
