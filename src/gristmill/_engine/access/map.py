"""The steps that produce one element for each: map, map with index and random map."""

from collections.abc import Callable, Iterable
from typing import cast

import numpy as np

from gristmill._base.indices import as_indices
from gristmill._base.seed import GeneratorState, generators, indexed_states, initial_states
from gristmill._base.trees.columns import Columns, RaggedError, is_columnar, split_rows
from gristmill._base.trees.tree import leaves_with_paths, map_leaves
from gristmill._data.sampling.samplers import BlockSampler
from gristmill._engine.access.context import ReadContext, RunStep
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.error_notes import add_context, call_each, call_for_all
from gristmill._engine.blocks.lineage import Lineage
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.nodes.steps import MapNode, MapWithIndexNode, RandomMapNode, SeededMapNode
from gristmill._plan.nodes.stream import CountedMapNode
from gristmill._plan.traverse import bottom_of, sample_of
from gristmill.errors import BatchError, PlanError
from gristmill.types import SupportsArray, Tree


def map_step(node: MapNode, context: ReadContext) -> RunStep:
    """Return the function that maps a block: as columns or as a list if the transform can."""

    def run(block: Block) -> BlockResult:
        data, function = block.data, node.batch_function
        if function is None or not isinstance(data, Columns) or data.holds_objects:
            return _map_list(node, block)
        try:
            columns = _map_columns(node, function, data, block.lineage)
        except RaggedError:
            return _map_list(node, block)
        except Exception as error:
            return _map_until_error(node, function, block, data, error)
        if is_columnar(columns):
            return BlockResult(block.with_columns(Columns.of(columns, range(len(block)))))
        return BlockResult(block.with_rows(split_rows(columns, len(block))))

    return run


def _map_list(node: MapNode, block: Block) -> BlockResult:
    """Map the rows of a block: in one call if the transform can, else one by one."""
    function = node.rows_function
    if function is None:
        return _map_rows(node, block)
    try:
        rows = list(call_for_all(node, block.lineage, function, list(block.rows())))
        if len(rows) != len(block):
            raise BatchError(
                f"`map_rows` of {node.name} returned {len(rows)} elements for {len(block)}. "
                "Return one for each."
            )
    except Exception as error:
        by_rows = _map_rows(node, block)  # names the element that fails
        if by_rows.error:
            return by_rows
        return BlockResult(block[:0], add_context(error, node, block.lineage, 0))
    return BlockResult(block.with_rows(rows))


def _map_rows(node: MapNode, block: Block) -> BlockResult:
    rows, error = call_each(node, block.lineage, node.function, block.rows())
    return BlockResult(block.with_rows(rows), error, row=len(rows))


def _map_columns(
    node: MapNode, function: Callable[[Tree], Tree], data: Columns, lineage: Lineage
) -> Tree:
    columns = map_leaves(_as_array, call_for_all(node, lineage, function, data.gather()))
    _check_columns(node, columns, len(data))
    return columns


def _as_array(leaf: object) -> object:
    """Convert what NumPy can convert, such as a `jax.Array`, to an array."""
    return np.asarray(leaf) if isinstance(leaf, SupportsArray) else leaf


def _map_until_error(
    node: MapNode,
    function: Callable[[Tree], Tree],
    block: Block,
    data: Columns,
    error: Exception,
) -> BlockResult:
    """Find the element that fails: by rows, else as columns of one element each."""
    by_rows = _map_rows(node, block)
    if by_rows.error:
        return by_rows
    for row in range(len(block)):
        try:
            _map_columns(node, function, data[row : row + 1], block.lineage[row : row + 1])
        except Exception as failure:
            return BlockResult(
                by_rows.block[:row], add_context(failure, node, block.lineage, row), row=row
            )
    return BlockResult(block[:0], add_context(error, node, block.lineage, 0))


def _check_columns(node: MapNode, columns: Tree, count: int) -> None:
    """Refuse a result of `map_batch` that does not have one item for each element."""
    problem = ""
    leaves = list(leaves_with_paths(columns, "columns"))
    if not leaves:
        problem = repr(columns)
    for path, leaf in leaves:
        shape = np.shape(leaf)
        if not isinstance(leaf, np.ndarray) or shape[:1] != (count,):
            problem = f"{path} of shape {shape}"
    if problem:
        raise BatchError(
            f"`map_batch` of {node.name} returned {problem} for {count} elements. "
            "Return arrays with the elements along the first axis."
        )


def map_with_index_step(node: MapWithIndexNode | CountedMapNode, context: ReadContext) -> RunStep:
    """Return the function that maps a block with the index of each element."""
    indices_of = _indices_of(node)

    def run(block: Block) -> BlockResult:
        indices = indices_of(block.lineage)
        rows, error = call_each(node, block.lineage, node.function, indices, block.rows())
        return BlockResult(block.with_rows(rows), error, row=len(rows))

    return run


def random_map_step(node: RandomMapNode, context: ReadContext) -> RunStep:
    """Return the function that maps a block with the generator of each sampled record.

    Each random step of a record continues with the generator of the one before.
    """
    if not isinstance(sample_of(node).sampler, BlockSampler):
        return _map_with_user_generators(node)
    states_of = _initial_states(node)
    return _random_map(
        node,
        lambda block: cast(
            "Iterable[GeneratorState]",
            states_of(block.lineage) if block.generators is None else block.generators,
        ),
        keeps_states=any(isinstance(step, RandomMapNode) for step in context.steps_above),
    )


def seeded_map_step(node: SeededMapNode | CountedMapNode, context: ReadContext) -> RunStep:
    """Return the function that maps a block with a generator made from seed and index."""
    indices_of = _indices_of(node)
    seed = node.seed
    if seed is None:
        raise TypeError(f"{node.label} has no seed")
    return _random_map(node, lambda block: indexed_states(seed, indices_of(block.lineage)))


def _random_map(
    node: RandomMapNode | SeededMapNode | CountedMapNode,
    states_of: Callable[[Block], Iterable[GeneratorState]],
    *,
    keeps_states: bool = False,
) -> RunStep:
    """Return the function that maps a block with generators in the states of its elements.

    Args:
        node: The step.
        states_of: Returns the state of the generator of each element.
        keeps_states: Whether a later step needs the states after use.
    """

    def run(block: Block) -> BlockResult:
        used: list[GeneratorState] | None = [] if keeps_states else None
        drawn = generators(states_of(block), used=used)
        rows, error = call_each(node, block.lineage, node.function, block.rows(), drawn)
        if error is None:
            next(drawn, None)  # adds the last state to `used`
        return BlockResult(Block(rows, block.lineage[: len(rows)], used), error, row=len(rows))

    return run


def _map_with_user_generators(node: RandomMapNode) -> RunStep:
    def run(block: Block) -> BlockResult:
        if block.generators is None:
            missing = PlanError(
                f"{node.label} needs a generator, and the sampler provides none. "
                "Set `rng` in the `RecordMetadata` that it returns."
            )
            return BlockResult(block[:0], add_context(missing, node, block.lineage, 0))
        rows, error = call_each(node, block.lineage, node.function, block.rows(), block.generators)
        return BlockResult(block.with_rows(rows), error, row=len(rows))

    return run


def _indices_of(
    node: MapWithIndexNode | RandomMapNode | SeededMapNode | CountedMapNode,
) -> Callable[[Lineage], list[int]]:
    """Return the function that finds the indices of elements: in the sampler's stream, if any."""
    bottom = bottom_of(node)
    if isinstance(bottom, SampleNode):
        return lambda lineage: as_indices(bottom.indices(lineage.positions())).tolist()
    return lambda lineage: lineage.positions().tolist()


def _initial_states(node: RandomMapNode) -> Callable[[Lineage], Iterable[GeneratorState]]:
    """Return the function that finds the first state of the generator of each sampled record.

    The outputs of a flat map each have a generator of their own.
    """
    indices_of = _indices_of(node)
    seed = cast("int", sample_of(node).seed)  # without one, the plan could not be built

    def states_of(lineage: Lineage) -> Iterable[GeneratorState]:
        origins = lineage.sparse().origins
        outputs = np.zeros(len(origins), dtype=np.uint64)
        for level in range(1, origins.shape[1]):
            outputs = outputs * np.uint64(1_000_003) + origins[:, level].astype(np.uint64)
        keys = (seed + index for index in indices_of(lineage))
        return initial_states(keys, outputs.tolist())

    return states_of
