"""Run the steps that give one element for each."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np

from gristmill._columns import Columns, is_columnar, split_rows
from gristmill._seed import GeneratorState, first_states, generators
from gristmill._tree import leaves_with_paths
from gristmill.errors import BatchError
from gristmill.execute._blame import blame, call_each
from gristmill.execute._block import Block
from gristmill.order import BlockSampler
from gristmill.plan import MapNode, MapWithIndexNode, RandomMapNode, SampleNode, sample_of
from gristmill.types import Element, Tree


def map_step(node: MapNode) -> Callable[[Block], Block]:
    """Give the function that maps a block: by rows, or as columns where the transform can."""

    def run(block: Block) -> Block:
        if node.batch_function is None or not isinstance(block.data, Columns):
            return block.with_data(call_each(node, block.track, node.function, block.rows()))
        try:
            columns = node.batch_function(block.data.gather())
        except Exception as error:
            call_each(node, block.track, node.function, block.rows())  # finds the record to blame
            blame(error, node, block.track, 0)
            raise
        return block.with_data(_checked(node, block, columns))

    return run


def _checked(node: MapNode, block: Block, columns: Tree) -> list[Element] | Columns:
    """Take the result of `map_batch`, if it has one item for each element."""
    for path, leaf in leaves_with_paths(columns, "columns"):
        if not isinstance(leaf, np.ndarray) or np.shape(cast(Any, leaf))[:1] != (len(block),):
            error = BatchError(
                f"`map_batch` of {node.name} gave {path} of shape {np.shape(cast(Any, leaf))} for "
                f"{len(block)} elements. Give arrays with the elements along the first axis."
            )
            blame(error, node, block.track, 0)
            raise error
    if is_columnar(columns):
        return Columns.of(columns, range(len(block)))
    return split_rows(columns, len(block))


def map_with_index_step(node: MapWithIndexNode) -> Callable[[Block], Block]:
    """Give the function that maps a block with each element's index in the stream."""
    sample = sample_of(node)

    def run(block: Block) -> Block:
        track = block.track
        indices = np.asarray(sample.indices(track.sparse().origins[:, 0])).tolist()
        return block.with_data(call_each(node, track, node.function, indices, block.rows()))

    return run


def random_map_step(node: RandomMapNode, *, goes_on: bool) -> Callable[[Block], Block]:
    """Give the function that maps a block with each record's generator.

    `goes_on` tells that a later random step draws on from the same generators.
    """
    sample = sample_of(node)

    def run(block: Block) -> Block:
        if isinstance(sample.sampler, BlockSampler):
            states = block.generators or _first_states(sample, block)
            used: list[Any] | None = [] if goes_on else None
            drawn = generators(states, used=used)
        else:
            drawn, used = iter(block.generators or ()), block.generators
        rows = call_each(node, block.track, node.function, block.rows(), drawn)
        next(drawn, None)  # lets the last one be added to `used`
        return Block(rows, block.track, used)

    return run


def _first_states(sample: SampleNode, block: Block) -> Iterator[GeneratorState]:
    origins = block.track.sparse().origins
    indices = np.asarray(sample.indices(origins[:, 0])).tolist()
    pieces = np.zeros(len(origins), dtype=np.uint64)
    for level in range(1, origins.shape[1]):
        pieces = pieces * np.uint64(1_000_003) + origins[:, level].astype(np.uint64)
    seed: Any = sample.seed
    return first_states((seed + index for index in indices), pieces.tolist())
