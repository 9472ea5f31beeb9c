"""Zip streams: as many tuples at once as there are elements at hand of each."""

from typing import Any, final

from gristmill.errors import PlanError, StateError
from gristmill.execute._blame import add_note_once
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import StatefulStage
from gristmill.plan import ZipStreamNode


@final
class ZipStage(StatefulStage):
    """Takes one element of each parent for a tuple. The state is the cursors of the parents."""

    def __init__(self, node: ZipStreamNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node

    def first_state(self) -> Any:
        return [intake.stage.start for intake in self._intakes]

    def restore(self, state: Any) -> None:
        if len(state) != len(self._intakes):
            raise StateError(
                f"The state is of {len(state)} zipped datasets, these are {len(self._intakes)}."
            )
        for intake, cursor in zip(self._intakes, state, strict=True):
            intake.seek(cursor)

    def pull(self) -> Outcome | None:
        for number, intake in enumerate(self._intakes):
            if not intake.fill():
                error = intake.error or self._uneven(number)
                return None if error is None else self.give([], lambda _: None, error)
        marks = tuple(intake.mark() for intake in self._intakes)
        count = min(intake.count for intake in self._intakes)
        rows = list(zip(*(intake.take(count) for intake in self._intakes), strict=True))
        return self.give(rows, lambda count: [mark.after(count) for mark in marks])

    def _uneven(self, number: int) -> BaseException | None:
        """Say what is wrong with an end of the parent of this number, if anything is."""
        if not self._node.strict:
            return None
        if number:
            return self._error(number, "shorter")
        for other, intake in enumerate(self._intakes[1:], start=1):
            if intake.fill():
                return self._error(other, "longer")
            if intake.error is not None:
                return intake.error
        return None

    def _error(self, number: int, how: str) -> PlanError:
        others = "argument 1" if number == 1 else f"arguments 1-{number}"
        error = PlanError(
            f"ZipIterDataset argument {number + 1} is {how} than {others}. Make them equally long, "
            "or pass `strict=False` to end with the shortest."
        )
        add_note_once(error, f"In {self._node.label}, added at {self._node.site}.")
        return error
