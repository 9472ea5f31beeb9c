"""Readers of the nodes at the bottom of a plan: records of sources, sampled or by index."""

import logging
import operator
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.indices import as_indices
from gristmill._base.trees.columns import SupportsColumns
from gristmill._data.sampling.record import RecordMetadata
from gristmill._data.sampling.samplers import BlockSampler
from gristmill._data.sources.memory.range import RangeDataSource
from gristmill._engine.access.context import ReadContext, Reader, result_at
from gristmill._engine.access.skip_errors import leaving_out_at
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.error_notes import (
    add_context,
    call_each,
    call_for_all,
    step_name,
)
from gristmill._engine.blocks.lineage import Lineage, lineage_of
from gristmill._metrics.profiler import named
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.dataset import CustomNode
from gristmill._plan.nodes.sampled import ExcludedFrom, SampleNode, SourceNode
from gristmill.errors import SourceError
from gristmill.types import Indices, Span, SupportsGetItems

logger = logging.getLogger("gristmill")

WINDOW = 65_536
"""Keys found in one call: a shuffle makes as many NumPy calls for 100 of them as for 10,000."""

GROWTH = 16
"""The next window is at most this many times as long as the current one."""


def in_windows(
    find: Callable[[range], Span], *, epoch: int, end: int | None = None
) -> Callable[[range], Span]:
    """Return a function that finds keys as `find` does, and looks ahead on consecutive requests.

    Args:
        find: Returns the keys of a range of positions.
        epoch: The number of positions of an epoch, the longest lookahead.
        end: The position after the last one; by default, lookahead ends with each epoch.
    """
    window: tuple[int, Span] = (0, range(0))  # replaced as a whole, as threads may share it

    def find_keys(positions: range) -> Span:
        nonlocal window
        first, keys = window
        if not (first <= positions.start and positions.stop <= first + len(keys)):
            # Only consecutive requests look ahead, each further than the last, so that the first
            # ones are fast. Some ranges between them may be read by other workers. With few
            # records, looking past an epoch would compute the shuffle of each epoch in the window.
            is_consecutive = first < positions.start <= first + len(keys) + WINDOW
            ahead = min(WINDOW, epoch, GROWTH * len(keys)) if is_consecutive else 0
            first = positions.start
            limit = first - first % epoch + epoch if end is None else end
            wanted = range(first, max(min(first + ahead, limit), positions.stop))
            keys = find(wanted)
            window = first, keys
        return keys[positions.start - first : positions.stop - first]

    return find_keys


def as_range(span: Span) -> range | None:
    """Return consecutive positions as a range, and `None` for others or none at all.

    >>> as_range(np.array([4, 5, 6])), as_range(np.array([4, 6, 5]))
    (range(4, 7), None)
    """
    if isinstance(span, range):
        return span if span.step == 1 and len(span) else None
    if not len(span):
        return None
    first, last = int(span[0]), int(span[-1])
    if last - first != len(span) - 1:
        return None
    return range(first, last + 1) if (np.diff(span) == 1).all() else None


ReadRecords: TypeAlias = Callable[[Span, Lineage], BlockResult]
"""Reads the records at some keys of a source, as the elements of a lineage."""


def source_reader(node: SourceNode, context: ReadContext) -> Reader:
    """Return the reader of a source as a dataset: indices past its length are later epochs."""
    length = node.length()
    read_records = named(step_name(node), _Records(node, error_node=node).read)

    def read(indices: Span) -> BlockResult:
        return read_records(_within_epoch(indices, length), lineage_of(indices))

    return leaving_out_at(node, read) if context.skips_errors else read


def _within_epoch(indices: Span, length: int) -> Span:
    if isinstance(indices, range):
        start = indices.start % length
        if indices.step == 1 and start + len(indices) <= length:
            return range(start, start + len(indices))
    keys = as_indices(as_indices(indices) % length)
    consecutive = as_range(keys)
    return keys if consecutive is None else consecutive


def custom_reader(node: CustomNode, context: ReadContext) -> Reader:
    """Return the reader of a user's own dataset."""

    def read(indices: Span) -> BlockResult:
        rows, error = call_each(
            node,
            lineage_of(indices),
            node.dataset.__getitem__,
            _as_integers(indices),
            is_source=True,
        )
        return result_at(indices, rows, error)

    return leaving_out_at(node, read) if context.skips_errors else read


def sample_reader(node: SampleNode, context: ReadContext) -> Reader:
    """Return the reader of sampled records."""
    read_records = _Records(node.parent, error_node=node).read
    if node.excluded:
        read_records = _reading_others(read_records, node.excluded)
    sampler = node.sampler
    if isinstance(sampler, BlockSampler):
        read = _block_sampler_reader(node, sampler, read_records, context.num_flat_maps)
    else:
        read = _user_sampler_reader(node, sampler, read_records, context.num_flat_maps)
    return named(step_name(node), read)


def _reading_others(read_records: ReadRecords, exclusions: Sequence[ExcludedFrom]) -> ReadRecords:
    """Return a function that reads all records but some, and leaves their positions out."""
    left_out = [(first, as_indices(records)) for first, records in exclusions]

    def read(keys: Span, lineage: Lineage) -> BlockResult:
        numbers = as_indices(keys)
        is_kept = np.full(len(numbers), fill_value=True)
        for first, records in left_out:
            is_excluded = is_among(records, numbers)
            if is_excluded.any():
                is_kept &= ~(is_excluded & (lineage.positions() >= first))
        if is_kept.all():
            return read_records(keys, lineage)
        kept = np.flatnonzero(is_kept)
        others = lineage.sparse()[kept]
        if not len(kept):
            return BlockResult(Block([], others), row=len(numbers))
        result = read_records(numbers[kept], others)
        row = len(numbers) if result.error is None else int(kept[result.row])
        return BlockResult(result.block, result.error, row=row)

    return read


def is_among(some: Indices, numbers: Indices) -> NDArray[np.bool_]:
    """Return for each number whether it is among some ascending ones, of which there is one."""
    return some[np.minimum(np.searchsorted(some, numbers), len(some) - 1)] == numbers


def _block_sampler_reader(
    node: SampleNode, sampler: BlockSampler, read_records: ReadRecords, num_flat_maps: int
) -> Reader:
    def find_keys(positions: Span) -> Span:
        return sampler.keys(node.indices(positions))

    find_keys_ahead = in_windows(find_keys, end=node.length(), epoch=sampler.num_records)

    def read(positions: Span) -> BlockResult:
        consecutive = as_range(positions)
        keys = find_keys(positions) if consecutive is None else find_keys_ahead(consecutive)
        return read_records(keys, lineage_of(positions, num_flat_maps=num_flat_maps))

    return read


def _user_sampler_reader(
    node: SampleNode, sampler: Any, read_records: ReadRecords, num_flat_maps: int
) -> Reader:
    num_records = node.parent.length()

    def key_of(metadata: RecordMetadata | SupportsIndex) -> int:
        try:
            is_key = isinstance(metadata, SupportsIndex)
            key = operator.index(metadata if is_key else cast("int", metadata.record_key))
        except (AttributeError, TypeError):
            raise TypeError(
                "The sampler must return the integer index of a record, or `RecordMetadata` with "
                f"an integer `record_key`, got {metadata!r}."
            ) from None
        if not 0 <= key < num_records:
            raise IndexError(f"The sampler asks for record {key}, the source has {num_records}.")
        return key

    def read(positions: Span) -> BlockResult:
        lineage = lineage_of(positions, num_flat_maps=num_flat_maps)
        indices = _as_integers(node.indices(positions))
        sampled, sampler_error = call_each(node, lineage, sampler.__getitem__, indices)
        keys, key_error = call_each(node, lineage[: len(sampled)], key_of, sampled)
        result = read_records(np.array(keys, dtype=np.int64), lineage[: len(keys)])
        block, error = result.block, result.error or key_error or sampler_error
        generators: list[Any] = [getattr(one, "rng", None) for one in sampled[: len(block)]]
        if any(generator is None for generator in generators):
            return BlockResult(block, error, row=len(block))
        return BlockResult(Block(block.data, block.lineage, generators), error, row=len(block))

    return read


@final
class _Records:
    """Reads records of a source by key; error notes name `error_node`."""

    def __init__(self, node: SourceNode, *, error_node: Node) -> None:
        self._source: Any = node.source
        self._error_node = error_node
        self._label = node.label
        self._num_records = node.length()
        self._takes_arrays = isinstance(node.source, RangeDataSource)
        self._takes_many = True
        """Whether `__getitems__`, if there is one, can be called with a list."""

    @property
    def read(self) -> ReadRecords:
        """The fastest read that the source supports."""
        if isinstance(self._source, SupportsColumns) and self._source.is_columnar:
            return self._read_columns
        if isinstance(self._source, SupportsGetItems):
            return self._read_at_once
        return self._read_one_by_one

    def _read_columns(self, keys: Span, lineage: Lineage) -> BlockResult:
        try:
            read_columns = self._source.read_columns
            columns = call_for_all(self._error_node, lineage, read_columns, keys)
            return BlockResult(Block(columns, lineage))
        except Exception as error:
            return self._locate_error(error, keys, lineage)

    def _read_at_once(self, keys: Span, lineage: Lineage) -> BlockResult:
        if not self._takes_many:
            return self._read_one_by_one(keys, lineage)
        numbers = keys if self._takes_arrays else _as_integers(keys)
        try:
            read_many = self._source.__getitems__
            rows = list(call_for_all(self._error_node, lineage, read_many, numbers))
            if len(rows) != len(numbers):
                raise SourceError(
                    f"`__getitems__` returned {len(rows)} records for {len(numbers)} indices."
                )
        except Exception as error:
            return self._locate_error(error, keys, lineage)
        return BlockResult(Block(rows, lineage))

    def _read_one_by_one(self, keys: Span, lineage: Lineage) -> BlockResult:
        read_one, numbers = self._source.__getitem__, _as_integers(keys)
        rows, error = call_each(self._error_node, lineage, read_one, numbers, is_source=True)
        if isinstance(error, IndexError):
            error.add_note(f"The length of the source is {self._num_records}.")
        return BlockResult(Block(rows, lineage[: len(rows)]), error, row=len(rows))

    def _locate_error(self, error: Exception, keys: Span, lineage: Lineage) -> BlockResult:
        """Read one by one up to the record that fails.

        If none does, all of them fail, unless `__getitems__` has another signature: that of a
        source of TFDS does while TFDS mocks its data.
        """
        result = self._read_one_by_one(keys, lineage)
        if result.error:
            return result
        if isinstance(error, TypeError):
            self._takes_many = False
            logger.info(
                "Records of %s are read one by one, because `__getitems__` raised: %s",
                self._label,
                error,
            )
            return result
        return BlockResult(Block.empty(), add_context(error, self._error_node, lineage, 0))


def _as_integers(span: Span) -> Sequence[int]:
    """Return positions as Python integers, which is what users' code is called with."""
    return span if isinstance(span, range) else span.tolist()
