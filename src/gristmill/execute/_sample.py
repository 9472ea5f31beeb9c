"""Read the sampled records of a range of positions."""

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from gristmill._columns import SupportsColumns
from gristmill.errors import SourceError
from gristmill.execute._blame import blame, call_each
from gristmill.execute._block import Block
from gristmill.execute._outcome import Outcome
from gristmill.execute._track import DenseTrack, Track
from gristmill.order import BlockSampler
from gristmill.plan import Node, SampleNode, SourceNode
from gristmill.sources import RangeDataSource
from gristmill.types import Span, SupportsGetItems

WINDOW = 65_536
"""Keys found in one go: a shuffle takes as many calls of NumPy for 100 of them as for 10,000."""

GROWTH = 16
"""How many times as far as before the next window goes."""

ReadRecords: TypeAlias = Callable[[Span, Track], Outcome]


def sample_reader(node: SampleNode, *, num_flat_maps: int) -> Callable[[range], Outcome]:
    """Give the function that reads a range of positions."""
    read = record_reader(node.parent, blamed=node)
    if not isinstance(node.sampler, BlockSampler):
        return _reader_for_users_sampler(node, read, num_flat_maps)
    sampler = node.sampler
    find_keys = in_windows(
        lambda positions: sampler.keys(node.indices(positions)),
        end=node.length(),
        epoch=sampler.num_records,
    )

    def read_positions(positions: range) -> Outcome:
        track = DenseTrack.of_records(positions, num_flat_maps=num_flat_maps)
        return read(find_keys(positions), track)

    return read_positions


def in_windows(
    find: Callable[[range], Span], *, epoch: int, end: int | None = None
) -> Callable[[range], Span]:
    """Give a function that finds keys ahead: of up to an epoch, and not past the end.

    Where there is no end, not past the end of an epoch.
    """
    window: tuple[int, Span] = (0, range(0))  # replaced as a whole: threads may share it

    def find_keys(positions: range) -> Span:
        nonlocal window
        first, keys = window
        if not (first <= positions.start and positions.stop <= first + len(keys)):
            # Only reads that follow each other look ahead, and each time further: the first ones
            # wait for no more. Some are left to other workers. With few records, each epoch in the
            # window would be shuffled for its own.
            follows = first < positions.start <= first + len(keys) + WINDOW
            ahead = min(WINDOW, epoch, GROWTH * len(keys)) if follows else 0
            first = positions.start
            limit = first - first % epoch + epoch if end is None else end
            wanted = range(first, max(min(first + ahead, limit), positions.stop))
            keys = find(wanted)
            window = first, keys
        return keys[positions.start - first : positions.stop - first]

    return find_keys


def _reader_for_users_sampler(
    node: SampleNode, read_records: ReadRecords, num_flat_maps: int
) -> Callable[[range], Outcome]:
    sampler: Any = node.sampler
    num_records = node.parent.length()

    def key_of(metadata: Any) -> int:
        try:
            key = operator.index(metadata.record_key)
        except (AttributeError, TypeError):
            raise TypeError(
                "The sampler must give `RecordMetadata` with an integer `record_key`, got "
                f"{metadata!r}."
            ) from None
        if not 0 <= key < num_records:
            raise IndexError(f"The sampler asks for record {key}, the source has {num_records}.")
        return key

    def read(positions: range) -> Outcome:
        track = DenseTrack.of_records(positions, num_flat_maps=num_flat_maps)
        said, silence = call_each(node, track, sampler.__getitem__, node.indices(positions))
        keys, nonsense = call_each(node, track[: len(said)], key_of, said)
        outcome = read_records(np.array(keys, dtype=np.int64), track[: len(keys)])
        block, error = outcome.block, outcome.error or nonsense or silence
        generators = [metadata.rng for metadata in said[: len(block)]]
        if any(generator is None for generator in generators):
            return Outcome(block, error, len(block))
        return Outcome(Block(block.data, block.track, generators), error, len(block))

    return read


def record_reader(node: SourceNode, *, blamed: Node) -> ReadRecords:
    """Give the function that reads records by their keys; errors name the node `blamed`."""
    source: Any = node.source
    num_records = node.length()

    def read_one_by_one(keys: Span, track: Track) -> Outcome:
        numbers = keys if isinstance(keys, range) else keys.tolist()
        rows, error = call_each(blamed, track, source.__getitem__, numbers)
        if isinstance(error, IndexError):
            error.add_note(f"The source says that it has {num_records} records.")
        return Outcome(Block(rows, track[: len(rows)]), error, len(rows))

    def read_to_blame(error: Exception, keys: Span, track: Track) -> Outcome:
        by_one = read_one_by_one(keys, track)  # finds the record
        return by_one if by_one.error else Outcome(Block.empty(), blame(error, blamed, track, 0))

    takes_arrays = isinstance(source, RangeDataSource)

    def read_at_once(keys: Span, track: Track) -> Outcome:
        numbers = keys if takes_arrays or isinstance(keys, range) else keys.tolist()
        try:
            rows = list(source.__getitems__(numbers))
            if len(rows) != len(numbers):
                raise SourceError(
                    f"`__getitems__` gave {len(rows)} records for {len(numbers)} indices."
                )
        except Exception as error:
            return read_to_blame(error, keys, track)
        return Outcome(Block(rows, track))

    def read_columns(keys: Span, track: Track) -> Outcome:
        try:
            return Outcome(Block(source.read_columns(keys), track))
        except Exception as error:
            return read_to_blame(error, keys, track)

    if isinstance(source, SupportsColumns) and source.is_columnar:
        return read_columns
    return read_at_once if isinstance(source, SupportsGetItems) else read_one_by_one
