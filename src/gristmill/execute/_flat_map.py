"""Run the step that gives several elements for each."""

from collections.abc import Callable
from itertools import islice

import numpy as np

from gristmill.errors import PlanError
from gristmill.execute._blame import call_each
from gristmill.execute._block import Block
from gristmill.execute._outcome import Outcome
from gristmill.plan import FanOutNode, FlatMapNode
from gristmill.types import Element


def splitter(node: FlatMapNode | FanOutNode) -> Callable[[Element], list[Element]]:
    """Give the function that splits one element, and refuses too many pieces."""

    def split(element: Element) -> list[Element]:
        pieces = list(islice(node.function(element), node.max_fan_out + 1))
        if len(pieces) > node.max_fan_out:
            raise PlanError(
                f"{node.label} gave more than {node.max_fan_out} elements for one, which is its "
                "`max_fan_out`. Raise it, or split the record into fewer."
            )
        return pieces

    return split


def flat_map_step(node: FlatMapNode, *, level: int) -> Callable[[Block], Outcome]:
    """Give the function that splits the elements of a block; `level` counts flat maps from 1."""
    split = splitter(node)

    def run(block: Block) -> Outcome:
        groups, error = call_each(node, block.track, split, block.rows())
        counts = np.array([len(group) for group in groups], dtype=np.int64)
        track = block.track[: len(groups)].sparse().split(counts, level=level)
        pieces = [piece for group in groups for piece in group]
        made = Block(pieces, track)
        if node.given and len(pieces):
            made = made.take(np.flatnonzero(~track.lies_before(node.given)))
        return Outcome(made, error, len(groups))

    return run
