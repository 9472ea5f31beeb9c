"""Run the step that leaves elements out."""

from collections.abc import Callable

import numpy as np

from gristmill.execute._blame import call_each
from gristmill.execute._block import Block
from gristmill.execute._outcome import Outcome
from gristmill.execute._watch import Watch
from gristmill.plan import FilterNode


def filter_step(node: FilterNode) -> Callable[[Block], Outcome]:
    """Give the function that keeps the elements of a block that pass."""
    watch = None if node.limits is None else Watch(node.label, node.limits)

    def run(block: Block) -> Outcome:
        rows = block.rows()  # and no columns from here on: the filter may write into an element
        answers, error = call_each(node, block.track, node.function, rows)
        passed, unclear = call_each(node, block.track[: len(answers)], bool, answers)
        kept = np.flatnonzero(np.array(passed, dtype=bool))
        error = unclear or error
        if watch is not None:
            error = error or watch.count(len(passed), len(kept))
        return Outcome(block.with_rows(rows).take(kept), error, len(passed))

    return run
