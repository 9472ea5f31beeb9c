"""Run one stream after the other."""

from typing import Any, final

from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import Intake, StatefulStage
from gristmill.plan import ChainNode


@final
class ChainStage(StatefulStage):
    """Gives all of a parent, then all of the next. The state is whose turn it is, and its cursor.

    A parent that was not begun goes on from where the node says.
    """

    def __init__(self, node: ChainNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._starts = [
            parent.start if start is None else start
            for parent, start in zip(parents, node.starts, strict=True)
        ]
        self._begin(0)

    def first_state(self) -> Any:
        return [0, self._starts[0] if self._starts else None]

    def restore(self, state: Any) -> None:
        self._number = int(state[0])
        if self._number < len(self._intakes):
            self._intakes[self._number].seek(state[1])

    def pull(self) -> Outcome | None:
        while self._number < len(self._intakes):
            number, intake = self._number, self._intakes[self._number]
            if intake.fill():
                return self._give(number, intake)
            if intake.error is not None:
                return self.give([], lambda _: None, intake.error)
            self._begin(number + 1)
        return None

    def _give(self, number: int, intake: Intake) -> Outcome:
        mark = intake.mark()
        rows = intake.take(intake.count)
        return self.give(rows, lambda count: [number, mark.after(count)])

    def _begin(self, number: int) -> None:
        self._number = number
        if number < len(self._intakes):
            self._intakes[number].seek(self._starts[number])
