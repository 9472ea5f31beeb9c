"""Run the steps that give one element for each."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np

from gristmill._columns import Columns, RaggedError, is_columnar, split_rows
from gristmill._seed import GeneratorState, first_states, generators
from gristmill._span import as_indices
from gristmill._tree import leaves_with_paths, map_leaves
from gristmill.errors import BatchError, PlanError
from gristmill.execute._blame import blame, call_each
from gristmill.execute._block import Block
from gristmill.execute._outcome import Outcome
from gristmill.order import BlockSampler
from gristmill.plan import MapNode, MapWithIndexNode, RandomMapNode, SampleNode, sample_of
from gristmill.types import SupportsArray, Tree


def map_step(node: MapNode) -> Callable[[Block], Outcome]:
    """Give the function that maps a block: by rows, or as columns where the transform can."""

    def run(block: Block) -> Outcome:
        data, function = block.data, node.batch_function
        if function is None or not isinstance(data, Columns) or data.holds_objects:
            return _map_rows(node, block)
        try:
            columns = _map_columns(node, function, data)
        except RaggedError:
            return _map_rows(node, block)
        except Exception as error:
            return _map_up_to_the_failure(node, function, block, data, error)
        if is_columnar(columns):
            return Outcome(block.with_columns(Columns.of(columns, range(len(block)))))
        return Outcome(block.with_rows(split_rows(columns, len(block))))

    return run


def _map_rows(node: MapNode, block: Block) -> Outcome:
    rows, error = call_each(node, block.track, node.function, block.rows())
    return Outcome(block.with_rows(rows), error, len(rows))


def _map_columns(node: MapNode, function: Callable[[Tree], Tree], data: Columns) -> Tree:
    columns = map_leaves(_as_array, function(data.gather()))
    _check_columns(node, columns, len(data))
    return columns


def _as_array(leaf: Any) -> Any:
    """Take what can become an array, such as a `jax.Array`, as one."""
    return np.asarray(leaf) if isinstance(leaf, SupportsArray) else leaf


def _map_up_to_the_failure(
    node: MapNode,
    function: Callable[[Tree], Tree],
    block: Block,
    data: Columns,
    error: Exception,
) -> Outcome:
    """Find the element that fails: by rows, else as columns of one element each."""
    by_rows = _map_rows(node, block)
    if by_rows.error:
        return by_rows
    for row in range(len(block)):
        try:
            _map_columns(node, function, data[row : row + 1])
        except Exception as failure:
            return Outcome(by_rows.block[:row], blame(failure, node, block.track, row), row)
    return Outcome(block[:0], blame(error, node, block.track, 0))


def _check_columns(node: MapNode, columns: Tree, count: int) -> None:
    """Refuse a result of `map_batch` that has not one item for each element."""
    told = ""
    leaves = list(leaves_with_paths(columns, "columns"))
    if not leaves:
        told = repr(columns)
    for path, leaf in leaves:
        if not isinstance(leaf, np.ndarray) or np.shape(cast(Any, leaf))[:1] != (count,):
            told = f"{path} of shape {np.shape(cast(Any, leaf))}"
    if told:
        raise BatchError(
            f"`map_batch` of {node.name} gave {told} for {count} elements. "
            "Return arrays with the elements along the first axis."
        )


def map_with_index_step(node: MapWithIndexNode) -> Callable[[Block], Outcome]:
    """Give the function that maps a block with each element's index in the stream."""
    sample = sample_of(node)

    def run(block: Block) -> Outcome:
        indices = as_indices(sample.indices(block.track.sparse().origins[:, 0])).tolist()
        rows, error = call_each(node, block.track, node.function, indices, block.rows())
        return Outcome(block.with_rows(rows), error, len(rows))

    return run


def random_map_step(node: RandomMapNode, *, goes_on: bool) -> Callable[[Block], Outcome]:
    """Give the function that maps a block with each record's generator.

    `goes_on` tells that a later random step draws on from the same generators.
    """
    sample = sample_of(node)

    def run(block: Block) -> Outcome:
        given = block.generators
        if not isinstance(sample.sampler, BlockSampler):
            if given is None:
                error = PlanError(
                    f"{node.label} needs a generator, and the sampler gives none. "
                    "Set `rng` in the `RecordMetadata` it gives."
                )
                return Outcome(block[:0], blame(error, node, block.track, 0))
            rows, error = call_each(node, block.track, node.function, block.rows(), given)
            return Outcome(block.with_rows(rows), error, len(rows))
        used: list[GeneratorState] | None = [] if goes_on else None
        drawn = generators(_first_states(sample, block) if given is None else given, used=used)
        rows, error = call_each(node, block.track, node.function, block.rows(), drawn)
        if error is None:
            next(drawn, None)  # lets the last one be added to `used`
        return Outcome(Block(rows, block.track[: len(rows)], used), error, len(rows))

    return run


def _first_states(sample: SampleNode, block: Block) -> Iterator[GeneratorState]:
    origins = block.track.sparse().origins
    indices = as_indices(sample.indices(origins[:, 0])).tolist()
    pieces = np.zeros(len(origins), dtype=np.uint64)
    for level in range(1, origins.shape[1]):
        pieces = pieces * np.uint64(1_000_003) + origins[:, level].astype(np.uint64)
    seed: Any = sample.seed
    return first_states((seed + index for index in indices), pieces.tolist())
