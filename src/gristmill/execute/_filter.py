"""Run the step that leaves elements out."""

from collections.abc import Callable

import numpy as np

from gristmill.execute._blame import call_each
from gristmill.execute._block import Block
from gristmill.plan import FilterNode


def filter_step(node: FilterNode) -> Callable[[Block], Block]:
    """Give the function that keeps the elements of a block that pass."""

    def run(block: Block) -> Block:
        rows = block.rows()
        answers = call_each(node, block.track, node.function, rows)
        passed = np.array(call_each(node, block.track, bool, answers), dtype=bool)
        return block if passed.all() else block.take(np.flatnonzero(passed))

    return run
