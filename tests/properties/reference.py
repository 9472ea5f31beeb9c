"""What a pipeline means, one element at a time: slow, and obvious."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gristmill import (
    Batch,
    BatchOperation,
    Filter,
    FilterOperation,
    FlatMap,
    IndexSampler,
    Map,
    MapOperation,
    MapWithIndex,
    RandomMap,
    RandomMapOperation,
    SequentialSampler,
    ShardOptions,
)
from tests.properties.pipelines import OwnSampler, Pipeline
from tests.properties.trees import stacked


@dataclass
class Item:
    """An element, the index of the (last) record it is made of, and that record's generator."""

    element: Any
    index: int
    rng: Any


def reference(pipeline: Pipeline) -> Iterator[Any]:
    """Return the elements of a pipeline."""
    items = _records(pipeline)
    for operation in pipeline.operations:
        items = _apply(operation, items)
    return (item.element for item in items)


def _records(pipeline: Pipeline) -> Iterator[Item]:
    source, sampler = pipeline.source(), pipeline.sampler
    if isinstance(source, np.ndarray):
        source = list(source)
    for index in stream_indices(sampler, pipeline.shard):
        key = record_key(sampler, index)
        if isinstance(sampler, IndexSampler | SequentialSampler):
            rng = np.random.Generator(np.random.Philox(key=(sampler.seed or 0) + index))
        else:
            rng = sampler[index].rng
        yield Item(source[key], index, rng)


def record_key(sampler: Any, index: int) -> int:
    """Return the record at an index of the sampler's stream."""
    if not isinstance(sampler, IndexSampler) or sampler.shard_options.shard_count == 1:
        return sampler[index].record_key or 0
    count = sampler.shard_options.shard_count
    start, size = owned_piece(sampler)
    alone = IndexSampler(
        size, shuffle=sampler.shuffle, num_epochs=sampler.num_epochs, seed=sampler.seed
    )
    return start + (alone[index // count].record_key or 0)


def owned_piece(sampler: IndexSampler) -> tuple[int, int]:
    """Return the first record that a sampler's shard owns, and how many it owns."""
    shard = sampler.shard_options
    each, rest = divmod(sampler.num_records, shard.shard_count)
    if shard.drop_remainder:
        rest = 0
    sizes = [each + (other < rest) for other in range(shard.shard_count)]
    return sum(sizes[: shard.shard_index]), sizes[shard.shard_index]


def stream_indices(sampler: Any, shard: ShardOptions | None) -> Iterator[int]:
    """Return the indices of the sampler's stream that a shard reads: s, s + n, s + 2n, ..."""
    own: Any = getattr(sampler, "shard_options", ShardOptions(0, 1))
    shard = shard or own
    assert shard is not None
    index, count = shard.shard_index, shard.shard_count
    if isinstance(sampler, IndexSampler) and count > 1 and own == shard:
        positions = owned_piece(sampler)[1] * (sampler.num_epochs or 0)
    else:
        total = sampler.num_steps if isinstance(sampler, OwnSampler) else len(sampler)
        positions = total // count + (index < total % count and not shard.drop_remainder)
    return (position * count + index for position in range(positions))


def _apply(operation: Any, items: Iterator[Item]) -> Iterator[Item]:
    match operation:
        case Batch():
            function = operation.batch_fn or stacked
            return _batches(items, operation.batch_size, operation.drop_remainder, function)
        case BatchOperation():
            return _batches(items, operation.batch_size, operation.drop_remainder, stacked)
        case FlatMap():
            return (
                Item(piece, item.index, item.rng)
                for item in items
                for piece in operation.flat_map(item.element)
            )
        case Filter():
            return (item for item in items if operation.filter(item.element))
        case FilterOperation():
            return (item for item in items if operation.condition_function(item.element))
        case _:
            return _mapped(_mapper(operation), items)


def _mapper(operation: Any) -> Callable[[Item], Any]:
    match operation:
        case Map():
            return lambda item: operation.map(item.element)
        case MapOperation():
            return lambda item: operation.map_function(item.element)
        case MapWithIndex():
            return lambda item: operation.map_with_index(item.index, item.element)
        case RandomMap():
            return lambda item: operation.random_map(item.element, item.rng)
        case RandomMapOperation():
            return lambda item: operation.random_map_function(item.element, item.rng)
        case _:
            return lambda item: operation(item.element)


def _mapped(function: Callable[[Item], Any], items: Iterator[Item]) -> Iterator[Item]:
    return (Item(function(item), item.index, item.rng) for item in items)


def _batches(
    items: Iterator[Item], size: int, drop_remainder: bool, function: Callable[[list[Any]], Any]
) -> Iterator[Item]:
    waiting: list[Item] = []
    for item in items:
        waiting.append(item)
        if len(waiting) == size:
            yield _united(waiting, function)
            waiting = []
    if waiting and not drop_remainder:
        yield _united(waiting, function)


def _united(items: list[Item], function: Callable[[list[Any]], Any]) -> Item:
    return Item(function([item.element for item in items]), items[-1].index, items[-1].rng)
