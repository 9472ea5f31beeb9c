"""Run the step that leaves elements out."""

from collections.abc import Callable

import numpy as np

from gristmill.execute._blame import call_each
from gristmill.execute._block import Block
from gristmill.execute._outcome import Outcome
from gristmill.plan import FilterNode


def filter_step(node: FilterNode) -> Callable[[Block], Outcome]:
    """Give the function that keeps the elements of a block that pass."""

    def run(block: Block) -> Outcome:
        answers, error = call_each(node, block.track, node.function, block.rows())
        asked = block[: len(answers)]
        passed, unclear = call_each(node, asked.track, bool, answers)
        kept = np.flatnonzero(np.array(passed, dtype=bool))
        return Outcome(block if len(kept) == len(block) else block.take(kept), unclear or error)

    return run
