"""Run a stream again from its beginning when it ends."""

from typing import Any, final

from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import StatefulStage
from gristmill.plan import RepeatStreamNode


@final
class RepeatStage(StatefulStage):
    """Sends the parent back to its start. The state is the cursor below, and the epoch."""

    def __init__(self, node: RepeatStreamNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._intake = self._intakes[0]
        self._epoch = 0
        self._is_empty = True

    def first_state(self) -> Any:
        return [self._intake.stage.start, 0]

    def restore(self, state: Any) -> None:
        below, self._epoch = state
        self._is_empty = False  # nothing may be left of this epoch, and yet there is a next one
        self._intake.seek(below)

    def pull(self) -> Outcome | None:
        while not self._intake.fill():
            if self._intake.error is not None:
                return self.give([], lambda _: None, self._intake.error)
            # Without the first, an empty stream would be repeated for ever.
            if self._is_empty or self._epoch + 1 == self._node.num_epochs:
                return None
            self._epoch += 1
            self._is_empty = True
            self._intake.seek(self._intake.stage.start)
        self._is_empty = False
        mark, epoch = self._intake.mark(), self._epoch
        rows = self._intake.take(self._intake.count)
        return self.give(rows, lambda count: [mark.after(count), epoch])
