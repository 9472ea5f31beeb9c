"""End a stream after so many elements."""

from typing import Any, final

from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import StatefulStage
from gristmill.plan import LimitNode


@final
class LimitStage(StatefulStage):
    """Counts what it hands on. The state is the cursor below, and how many came so far."""

    def __init__(self, node: LimitNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._intake = self._intakes[0]
        self._count = 0

    def first_state(self) -> Any:
        return [self._intake.stage.start, 0]

    def restore(self, state: Any) -> None:
        below, self._count = state
        self._intake.seek(below)

    def pull(self) -> Outcome | None:
        num_left = self._node.count - self._count
        if num_left <= 0:  # and what comes after is not even looked for
            return None
        if not self._intake.fill():
            error = self._intake.error
            return None if error is None else self.give([], lambda _: None, error)
        mark, first = self._intake.mark(), self._count
        rows = self._intake.take(min(num_left, self._intake.count))
        self._count += len(rows)
        return self.give(rows, lambda count: [mark.after(count), first + count])
