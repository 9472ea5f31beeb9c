"""Run the step that leaves elements out."""

from collections.abc import Callable

import numpy as np

from gristmill.execute._blame import call_each
from gristmill.execute._block import Block
from gristmill.execute._outcome import Outcome, Seen
from gristmill.plan import FilterNode


def filter_step(node: FilterNode, *, num_above: int) -> Callable[[Block], Outcome]:
    """Give the function that keeps the elements of a block that pass; steps stand on it."""

    def run(block: Block) -> Outcome:
        rows = block.rows()  # and no columns from here on: the filter may write into an element
        answers, error = call_each(node, block.track, node.function, rows)
        passed, unclear = call_each(node, block.track[: len(answers)], bool, answers)
        has_passed = np.array(passed, dtype=bool)
        made = block.with_rows(rows).take(np.flatnonzero(has_passed))
        seen: tuple[Seen, ...] = ()
        if node.limits is not None:
            positions = block.track.sparse().origins[: len(passed), 0]
            seen = (Seen(num_above, positions, has_passed),)
        return Outcome(made, unclear or error, len(passed), seen=seen)

    return run
