"""Read the sampled records of a range of positions."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from gristmill._columns import Columns
from gristmill.errors import SourceError
from gristmill.execute._blame import blame, call_each
from gristmill.execute._block import Block
from gristmill.execute._track import DenseTrack, Track
from gristmill.order import BlockSampler
from gristmill.plan import SampleNode
from gristmill.sources import ArraySource
from gristmill.types import Element, Span, SupportsGetItems

WINDOW = 16_384
"""Keys found in one go: a shuffle takes as many calls of NumPy for 100 of them as for 10,000."""

FindKeys: TypeAlias = Callable[[range, Track], tuple[Span, list[Any] | None]]
ReadRecords: TypeAlias = Callable[[Span, Track], list[Element] | Columns]


def sample_reader(node: SampleNode, *, num_flat_maps: int) -> Callable[[range], Block]:
    """Give the function that reads a range of positions."""
    is_ours = isinstance(node.sampler, BlockSampler)
    find_keys = _keys_in_windows(node, node.sampler) if is_ours else _keys_one_by_one(node)
    read_records = _record_reader(node)

    def read(positions: range) -> Block:
        track = DenseTrack.of_records(positions, num_flat_maps=num_flat_maps)
        keys, generators = find_keys(positions, track)
        return Block(read_records(keys, track), track, generators)

    return read


def _keys_in_windows(node: SampleNode, sampler: Any) -> FindKeys:
    end = node.length()
    window: tuple[int, Span] = (0, range(0))  # replaced as a whole: threads may share it

    def find_keys(positions: range, _: Track) -> tuple[Span, None]:
        nonlocal window
        first, keys = window
        if not (first <= positions.start and positions.stop <= first + len(keys)):
            # Only reads that follow each other look ahead: the first one waits for no more.
            # With few records, each epoch in the window would be shuffled for its own.
            follows = first < positions.start <= first + len(keys)
            ahead = min(WINDOW, sampler.num_records) if follows else 0
            first = positions.start
            wanted = range(first, min(max(first + ahead, positions.stop), end))
            keys = sampler.keys(node.indices(wanted))
            window = first, keys
        return keys[positions.start - first : positions.stop - first], None

    return find_keys


def _keys_one_by_one(node: SampleNode) -> FindKeys:
    sampler: Any = node.sampler
    num_records = node.parent.length()

    def find_keys(positions: range, track: Track) -> tuple[Span, list[Any] | None]:
        said = call_each(node, track, sampler.__getitem__, node.indices(positions))
        keys = np.array([metadata.record_key for metadata in said], dtype=np.int64)
        wrong = np.flatnonzero((keys < 0) | (keys >= num_records))
        if len(wrong):
            error = IndexError(
                f"The sampler asks for record {keys[wrong[0]]}, the source has {num_records}."
            )
            blame(error, node, track, int(wrong[0]))
            raise error
        generators = [metadata.rng for metadata in said]
        return keys, None if any(rng is None for rng in generators) else generators

    return find_keys


def _record_reader(node: SampleNode) -> ReadRecords:
    source: Any = node.parent.source
    num_records = node.parent.length()

    def read_one_by_one(keys: Span, track: Track) -> list[Element]:
        numbers = keys if isinstance(keys, range) else keys.tolist()
        try:
            return call_each(node, track, source.__getitem__, numbers)
        except IndexError as error:
            error.add_note(f"The source says that it has {num_records} records.")
            raise

    def read_at_once(keys: Span, track: Track) -> list[Element]:
        numbers: Sequence[int] = keys if isinstance(keys, range) else keys.tolist()
        try:
            records = list(source.__getitems__(numbers))
        except Exception:
            read_one_by_one(keys, track)  # finds the record to blame
            raise
        if len(records) != len(numbers):
            error = SourceError(
                f"`__getitems__` gave {len(records)} records for {len(numbers)} indices."
            )
            blame(error, node, track, 0)
            raise error
        return records

    if isinstance(source, ArraySource) and source.is_columnar:
        columns = Columns.of(source.arrays, range(0))
        return lambda keys, _: columns.pick(keys)
    return read_at_once if isinstance(source, SupportsGetItems) else read_one_by_one
