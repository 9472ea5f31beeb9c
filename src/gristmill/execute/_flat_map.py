"""Run the step that gives several elements for each."""

from collections.abc import Callable

import numpy as np

from gristmill.errors import PlanError
from gristmill.execute._blame import blame, call_each
from gristmill.execute._block import Block
from gristmill.plan import FlatMapNode


def flat_map_step(node: FlatMapNode, *, level: int) -> Callable[[Block], Block]:
    """Give the function that splits the elements of a block; `level` counts flat maps from 1."""

    def run(block: Block) -> Block:
        results = call_each(node, block.track, node.function, block.rows())
        pieces = call_each(node, block.track, list, results)
        counts = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        too_many = np.flatnonzero(counts > node.max_fan_out)
        if len(too_many):
            row = int(too_many[0])
            error = PlanError(
                f"{node.label} gave {counts[row]} elements for one, its `max_fan_out` is "
                f"{node.max_fan_out}. Raise it, or split the record into fewer."
            )
            blame(error, node, block.track, row)
            raise error
        rows = [piece for group in pieces for piece in group]
        return Block(rows, block.track.sparse().split(counts, level=level))

    return run
