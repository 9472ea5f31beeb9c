"""Steps of a stream that need to know how many elements came before: they count."""

from typing import Any, final

import numpy as np

from gristmill._seed import generators, indexed_states
from gristmill.execute._blame import call_each
from gristmill.execute._fetch import present_rows
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import StatefulStage
from gristmill.execute._track import index_track
from gristmill.plan import CountedMapNode
from gristmill.types import Element


@final
class CountedMapStage(StatefulStage):
    """Calls a function with each element and its number, or a generator made from it.

    The state is the cursor below, and how many came so far.
    """

    def __init__(self, node: CountedMapNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._intake = self._intakes[0]
        self._count = node.first

    def first_state(self) -> Any:
        return [self._intake.stage.start, self._node.first]

    def restore(self, state: Any) -> None:
        below, self._count = state
        self._intake.seek(below)

    def pull(self) -> Outcome | None:
        if not self._intake.fill():
            error = self._intake.error
            return None if error is None else self.give([], lambda _: None, error)
        mark, first = self._intake.mark(), self._count
        taken = self._intake.take(self._intake.count)
        rows, error = self._map(taken, first)
        self._count += len(rows)
        return self.give(rows, lambda count: [mark.after(count), first + count], error)

    def _map(self, rows: list[Element], first: int) -> tuple[list[Element], BaseException | None]:
        node = self._node
        numbers = range(first, first + len(rows))
        present = present_rows(rows)
        if present is not None:
            numbers = [numbers[row] for row in present]
        track = index_track(np.array(numbers, dtype=np.int64))
        there = rows if present is None else [rows[row] for row in present]
        if node.seed is None:
            made, error = call_each(node, track, node.function, numbers, there)
        else:
            drawn = generators(indexed_states(node.seed, numbers))
            made, error = call_each(node, track, node.function, there, drawn)
        if present is None:
            return made, error
        mapped: list[Element] = [None] * len(rows)
        for row, element in zip(present, made, strict=False):
            mapped[row] = element
        return mapped[: present[len(made)]] if error else mapped, error
