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
        rows = block.rows()  # and no columns from here on: the filter may write into an element
        answers, error = call_each(node, block.track, node.function, rows)
        passed, unclear = call_each(node, block.track[: len(answers)], bool, answers)
        kept = np.flatnonzero(np.array(passed, dtype=bool))
        return Outcome(block.with_rows(rows).take(kept), unclear or error, len(passed))

    return run
