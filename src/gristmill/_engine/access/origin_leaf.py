"""Compute the leaf that `provenance=True` adds: the numbers of the records of a block."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill._base.indices import as_indices
from gristmill._base.trees.columns import Columns
from gristmill._engine.access.context import ReadContext, RunStep
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.error_notes import add_context
from gristmill._engine.blocks.lineage import Lineage
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.origin_leaf import OriginLeafNode, with_leaf
from gristmill._plan.traverse import num_flat_maps, sample_of


def origin_leaf(node: Node, lineage: Lineage) -> NDArray[np.int64]:
    """Return the number of the record of each element, and after flat maps those of its outputs.

    Records count from 1, over all shards, so that the zeros of padding stand for none.
    """
    positions = as_indices(sample_of(node).indices(lineage.positions()))
    records = positions.astype(np.int64, copy=False) + 1
    count = num_flat_maps(node)
    if not count:
        return records
    outputs = lineage.sparse().origins[:, 1 : 1 + count] - 1  # counted up to the output
    return np.concatenate([records[:, None], outputs], axis=1, dtype=np.int64)


def origin_leaf_step(node: OriginLeafNode, context: ReadContext) -> RunStep:
    """Return the function that adds the leaf to each element of a block."""

    def run(block: Block) -> BlockResult:
        leaf = origin_leaf(node, block.lineage)
        rows: list[Any] = []
        data = block.data.rows() if isinstance(block.data, Columns) else block.data
        try:
            for element, origin in zip(data, leaf, strict=True):
                rows.append(with_leaf(element, origin))
        except Exception as error:
            error = add_context(error, node, block.lineage, len(rows))
            return BlockResult(block.with_rows(rows), error, row=len(rows))
        return BlockResult(block.with_rows(rows))

    return run
